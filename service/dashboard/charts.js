// Charts by plotly.js, which is loaded with the first chart.

import { ServiceError } from "./api.js";
import { h } from "./dom.js";

const SOURCE = new URL("./plotly.min.js", import.meta.url);
const STYLE = new URL("./plotly.css", import.meta.url);
// The page's security policy allows only style sheets from our files. Plotly adds its rules to a sheet with this id if
// there is one, and skips its rules for maps, which we do not draw, if an element with the second id exists.
const STYLE_NAME = "plotly.js-style-global";
const MAPS_NAME = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
let loading = null;

function plotly() {
  loading ??= style().then(script);
  return loading;
}

function style() {
  return new Promise((done, failed) => {
    const link = h("link", { rel: "stylesheet", href: STYLE.href, id: STYLE_NAME });
    link.addEventListener("load", done);
    link.addEventListener("error", () => loadFailed(failed));
    document.head.append(link, h("meta", { id: MAPS_NAME }));
  });
}

function loadFailed(failed) {
  document.getElementById(STYLE_NAME)?.remove();
  document.getElementById(MAPS_NAME)?.remove();
  loading = null;
  failed(new ServiceError("The charts could not be loaded."));
}

function script() {
  return new Promise((done, failed) => {
    const element = h("script", { src: SOURCE.href });
    element.addEventListener("load", () => done(window.Plotly));
    element.addEventListener("error", () => loadFailed(failed));
    document.head.append(element);
  });
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Creates a chart: `show(figure)` draws it, `redraw` draws it again after a change of theme. */
export function chart(label, { tall = false } = {}) {
  const element = h("div", { class: tall ? "chart tall" : "chart", role: "img", "aria-label": label });
  let last = null;

  async function draw() {
    if (!last) return;
    const Plotly = await plotly();
    if (!element.isConnected || !last) return;
    element.querySelector(".empty")?.remove();
    element.classList.remove("blank");
    const { traces, layout } = last(colour);
    await Plotly.react(element, traces, styled(layout), { displayModeBar: false, responsive: true, showTips: false });
  }

  return {
    element,
    show(figure) {
      last = figure;
      return draw();
    },
    /** Says why there is nothing to draw, instead of axes without data. */
    empty(text) {
      if (window.Plotly && element.data) window.Plotly.purge(element);
      last = null;
      element.classList.add("blank");
      element.replaceChildren(h("p", { class: "empty" }, text));
    },
    redraw: draw,
    close: () => window.Plotly && element.data && window.Plotly.purge(element),
  };
}

function styled(layout) {
  const axis = {
    gridcolor: colour("--grid"),
    zerolinecolor: colour("--grid"),
    linecolor: colour("--grid"),
    tickfont: { size: 11 },
    fixedrange: false,
    automargin: true,
    exponentformat: "none",
    separatethousands: true,
  };
  const small = window.innerWidth < 640;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("--soft") },
    margin: { l: 8, r: 12, t: 8, b: 8 },
    hovermode: small ? "closest" : "x unified",
    hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--text") } },
    legend: LEGEND,
    uirevision: "kept",
    dragmode: small ? false : "zoom",
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
}

const LEGEND = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } };

export const PALETTE = [
  "#3b82f6", "#f59e0b", "#10b981", "#a855f7", "#ef4444", "#06b6d4",
  "#84cc16", "#ec4899", "#6366f1", "#14b8a6", "#f97316", "#8b5cf6",
];

const titled = (text) => ({ text, font: { size: 11 }, standoff: 4 });

/** Returns the axis of the flight as it is planned: rounds, or time if the campaign has an end time. */
export function flightAxis(config, createdAt) {
  const byTime = config.ends_at !== null && config.ends_at !== undefined;
  return byTime ? timeAxis(config, createdAt) : roundAxis(config);
}

/** Returns the axis of dates. Its end is that of the campaign, where that is a time. */
export function timeAxis(config, createdAt) {
  return {
    of: (point) => point.at,
    start: config.starts_at > createdAt ? config.starts_at : createdAt,
    end: config.ends_at ?? null,
    layout: { title: titled("date and time (UTC)"), type: "date", nticks: window.innerWidth < 640 ? 4 : 6 },
  };
}

/** Returns the axis of rounds. Its end is the horizon, where there is one. */
export function roundAxis(config) {
  return {
    of: (point) => point.round,
    start: 0,
    end: config.ends_at ? null : config.horizon,
    layout: { title: titled("round"), type: "linear" },
  };
}

const rangeOf = (axis, points) => [axis.start, axis.end ?? (points.length ? axis.of(points.at(-1)) : axis.start)];

/** Returns the line of an even pace: straight along the planned axis, by the share of the flight along the other. */
function evenPace(points, granted, axis, planned) {
  if (axis.end !== null) return { x: [axis.start, axis.end], y: [0, granted] };
  const number = (value) => (typeof value === "string" ? Date.parse(value) : value);
  const [start, end] = [number(planned.start), number(planned.end)];
  const share = (point) => Math.min(1, (number(planned.of(point)) - start) / (end - start || 1));
  return { x: [axis.start, ...points.map(axis.of)], y: [0, ...points.map((point) => granted * share(point))] };
}

export function burnFigure(points, resource, axis, planned, unit) {
  return (colourOf) => {
    const x = [axis.start, ...points.map(axis.of)];
    const granted = points.length ? points.at(-1).granted[resource] : 0;
    // The budgets of a new campaign are granted one by one, and the first point may be between them.
    const first = points.find((point) => point.granted[resource] > 0)?.granted[resource] ?? 0;
    return {
      traces: [
        {
          name: "even pace", ...evenPace(points, granted, axis, planned), mode: "lines", hoverinfo: "skip",
          line: { color: colourOf("--soft"), width: 1.5, dash: "dash" },
        },
        {
          name: "budget", x, y: [first, ...points.map((point) => point.granted[resource] || first)],
          mode: "lines", line: { color: colourOf("--bad"), width: 1, shape: "hv", dash: "dot" },
        },
        {
          name: "spent", x, y: [0, ...points.map((point) => point.spent[resource])], mode: "lines",
          fill: "tozeroy", fillcolor: colourOf("--spent-soft"), line: { color: colourOf("--spent"), width: 2 },
        },
      ],
      layout: {
        xaxis: { ...axis.layout, range: rangeOf(axis, points) },
        yaxis: { rangemode: "tozero", title: titled(unit) },
      },
    };
  };
}

export function priceFigure(points, resource, axis, scale) {
  return (colourOf) => {
    const priced = points.filter((point) => point.prices[resource] !== undefined);
    return {
      traces: [
        {
          name: "price", x: priced.map(axis.of), y: priced.map((point) => point.prices[resource] * scale),
          mode: "lines", line: { color: colourOf("--price"), width: 2 },
          fill: "tozeroy", fillcolor: colourOf("--price-soft"),
        },
      ],
      layout: {
        showlegend: false,
        xaxis: { ...axis.layout, range: rangeOf(axis, points) },
        yaxis: { rangemode: "tozero", nticks: 4 },
      },
    };
  };
}

/** Cumulated reward: of all decisions, and of each arm that is counted by name. */
export function rewardFigure(points, arms, axis, nameOf) {
  const x = [axis.start, ...points.map(axis.of)];
  const cumulated = (arm) => {
    let sum = 0;
    return [0, ...points.map((point) => (sum += point.arm_rewards[arm] ?? 0))];
  };
  return (colourOf) => ({
    traces: [
      {
        name: "all", x, y: [0, ...points.map((point) => point.reward)], mode: "lines",
        line: { color: colourOf("--text"), width: 2.5 },
      },
      ...arms.map((arm, index) => ({
        name: nameOf(arm), x, y: cumulated(arm), mode: "lines",
        line: { color: PALETTE[index % PALETTE.length], width: 1.5 },
      })),
    ],
    layout: { xaxis: axis.layout, yaxis: { rangemode: "tozero", title: titled("reward") } },
  });
}

/** Curves over the rounds of a log: with other budgets, with the campaign's own, and as logged where known. */
export function flightsFigure(rounds, { changed, control, actual }, budget = null) {
  return (colourOf) => {
    const line = (name, y, shade, dash = "solid", width = 1.5) => ({
      name, x: rounds, y, mode: "lines", line: { color: colourOf(shade), dash, width },
    });
    const level = budget === null ? [] : [line("budget", rounds.map(() => budget), "--bad", "dot", 1)];
    const traces = [
      ...level,
      ...(actual ? [line("as logged", actual, "--soft")] : []),
      line("own budgets", control, "--held", "dash"),
      line("these budgets", changed, "--spent", "solid", 2.5),
    ];
    const title = { text: "round of the log", font: { size: 11 }, standoff: 4 };
    return { traces, layout: { xaxis: { title }, yaxis: { rangemode: "tozero" } } };
  };
}

// Shares of few decisions are noisy, so this joins points.
const SHARE_POINTS = 40;

function coarser(points) {
  const size = Math.ceil(points.length / SHARE_POINTS);
  const found = [];
  for (let start = 0; start < points.length; start += size) {
    const part = points.slice(start, start + size);
    const arms = {};
    for (const [arm, count] of part.flatMap((point) => Object.entries(point.arms))) {
      arms[arm] = (arms[arm] ?? 0) + count;
    }
    const sum = (name) => part.reduce((total, point) => total + point[name], 0);
    found.push({ ...part.at(-1), arms, decisions: sum("decisions"), plays: sum("plays") });
  }
  return found;
}

export function shareFigure(points, arms, axis, nameOf) {
  const played = coarser(points).filter((point) => point.decisions > 0);
  const x = played.map(axis.of);
  return (colourOf) => {
    const area = (name, y, fill) => ({
      name, x, y, stackgroup: "shares", mode: "lines", line: { width: 0.5, color: fill }, fillcolor: fill,
      hovertemplate: "%{y:.0%}",
    });
    const named = (point) => arms.reduce((sum, arm) => sum + (point.arms[arm] ?? 0), 0);
    const traces = arms.map((arm, index) =>
      area(nameOf(arm), played.map((point) => (point.arms[arm] ?? 0) / point.decisions), PALETTE[index % PALETTE.length]),
    );
    if (played.some((point) => point.plays > named(point))) {
      const others = played.map((point) => (point.plays - named(point)) / point.decisions);
      traces.push(area("other arms", others, colourOf("--soft")));
    }
    traces.push(area("no arm", played.map((point) => 1 - point.plays / point.decisions), colourOf("--track")));
    const layout = {
      xaxis: axis.layout,
      yaxis: { range: [0, 1], tickformat: ".0%" },
      legend: { ...LEGEND, traceorder: "normal" },
    };
    return { traces, layout };
  };
}

export function lossFigure(losses, resources) {
  const x = losses.map((one) => one.at);
  const mode = losses.length > 1 ? "lines" : "markers"; // one point makes no line
  return (colourOf) => ({
    traces: [
      {
        name: "constant prediction (mean reward)", x, y: losses.map((one) => one.reward_guess), mode,
        line: { color: colourOf("--soft"), dash: "dash", width: 1.5 },
      },
      {
        name: "reward", x, y: losses.map((one) => one.reward_loss), mode,
        line: { color: PALETTE[0], width: 2 },
      },
      ...resources.map((resource, index) => ({
        name: resource, x, y: losses.map((one) => one.cost_loss[resource]), mode,
        line: { color: PALETTE[(index + 1) % PALETTE.length], width: 1.5 },
      })),
    ],
    layout: { yaxis: { rangemode: "tozero" }, xaxis: { type: "date" } },
  });
}
