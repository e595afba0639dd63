// The service's own interface, with the tab's key; every failure in words.

const ROOT = new URL("../../", import.meta.url);
const KEY = "cbwk.key";
const PATIENCE_MS = 15000;

/** What went wrong, for people; `status` 0 is no answer at all. */
export class Trouble extends Error {
  constructor(words, { status = 0, kind = "", retrySeconds = null } = {}) {
    super(words);
    this.status = status;
    this.kind = kind;
    this.retrySeconds = retrySeconds;
  }
}

export const keptKey = () => sessionStorage.getItem(KEY);
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const dropKey = () => sessionStorage.removeItem(KEY);

/** By how much this machine's clock is behind the service's, in milliseconds. */
let clockBehind = 0;
export const now = () => Date.now() + clockBehind;

/** The answer to one request, or Trouble. */
export async function ask(path, { method = "GET", body, key = keptKey() } = {}) {
  const headers = { Authorization: `Bearer ${key}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, ROOT), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const date = Date.parse(answer.headers.get("date") ?? "");
    // The header has whole seconds: smaller differences say nothing.
    if (!Number.isNaN(date)) clockBehind = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
    if (answer.ok) return await answer.json();
  } catch (error) {
    if (error.name === "TimeoutError") throw new Trouble("The service has not answered for 15 seconds.");
    throw new Trouble("No connection to the service.");
  }
  throw await troubleOf(answer);
}

async function troubleOf(answer) {
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // A proxy's own page, for instance: its status has to do.
  }
  const kind = String(problem.type ?? "").replace("urn:cbwk:problem:", "");
  const retrySeconds = Number(answer.headers.get("retry-after")) || null;
  return new Trouble(wordsFor(answer.status, kind, problem), { status: answer.status, kind, retrySeconds });
}

const UNAVAILABLE = {
  "database-away": "The service is up, but its database does not answer.",
  "queue-full": "The service has more to do than it can, and put this off.",
  "deadline-passed": "The service did not get to it in time. A change may have been made all the same.",
  "not-ready": "The service is starting.",
};

function wordsFor(status, kind, problem) {
  const detail = problem.detail ? `${problem.detail.charAt(0).toUpperCase()}${problem.detail.slice(1)}.` : "";
  if (status === 401) return "This key is not valid, or not any more.";
  if (status === 403) return `This key does not allow that: ${problem.detail ?? "it is forbidden"}.`;
  if (kind === "campaign-not-found") return "There is no such campaign, or this key may not see it.";
  if (kind === "decision-not-found") return "There is no such decision in this campaign, or it was pruned.";
  if (status === 422 && problem.errors?.length) {
    return problem.errors.map((error) => `${error.field}: ${error.message}`).join("; ");
  }
  if (status === 503) return UNAVAILABLE[kind] ?? detail ?? "The service is not available now.";
  if (status >= 500) return `The service failed (${status}). ${detail}`.trim();
  return detail || `The service answered ${status}.`;
}

/** All items of a list, page by page. */
export async function all(path, pagesMax = 20) {
  const items = [];
  let cursor = null;
  for (let page = 0; page < pagesMax; page += 1) {
    const found = await ask(`${path}?limit=1000${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
    items.push(...found.items);
    cursor = found.next_cursor;
    if (!cursor) break;
  }
  return items;
}

export const campaignPath = (id) => `campaigns/${encodeURIComponent(id)}`;
export const adminPath = (id, rest) => `admin/campaigns/${encodeURIComponent(id)}/${rest}`;
