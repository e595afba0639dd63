// Requests to the service with the tab's key; every failure becomes a message for people.

export const ROOT = new URL("../../", import.meta.url);
const KEY = "cbwk.key";
const TIMEOUT_MS = 15000;

/** A failed request, with a message for people; `status` is 0 without a response. */
export class ServiceError extends Error {
  constructor(message, { status = 0, kind = "", retrySeconds = null, errors = [] } = {}) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.retrySeconds = retrySeconds;
    this.errors = errors; // of a 422: [{ field, message }]
  }
}

export const storedKey = () => sessionStorage.getItem(KEY);
export const storeKey = (key) => sessionStorage.setItem(KEY, key);
export const deleteKey = () => sessionStorage.removeItem(KEY);

/** The service's clock minus this machine's, in milliseconds. */
let clockOffset = 0;
export const now = () => Date.now() + clockOffset;

/** Returns the body of a successful response; throws a ServiceError otherwise. */
export async function request(path, { method = "GET", body, key = storedKey() } = {}) {
  const headers = { Authorization: `Bearer ${key}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, ROOT), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const date = Date.parse(response.headers.get("date") ?? "");
    // The header has whole seconds: smaller differences mean nothing.
    if (!Number.isNaN(date)) clockOffset = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
    if (response.ok) return await response.json();
  } catch (error) {
    if (error.name === "TimeoutError") throw new ServiceError("The service did not answer within 15 seconds.");
    throw new ServiceError("No connection to the service.");
  }
  throw await errorOf(response);
}

async function errorOf(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy's own page, for instance: the status must suffice.
  }
  const kind = String(problem.type ?? "").replace("urn:cbwk:problem:", "");
  const retrySeconds = Number(response.headers.get("retry-after")) || null;
  const { status } = response;
  return new ServiceError(messageFor(status, kind, problem), { status, kind, retrySeconds, errors: problem.errors });
}

const UNAVAILABLE = {
  "database-away": "The service is up, but its database does not answer.",
  "queue-full": "The service is overloaded and refused the request.",
  "deadline-passed": "The service did not answer in time. The change may have been made.",
  "not-ready": "The service is starting.",
};

function messageFor(status, kind, problem) {
  const detail = problem.detail ? `${problem.detail.charAt(0).toUpperCase()}${problem.detail.slice(1)}.` : "";
  if (status === 401) return "This key is invalid or was revoked.";
  if (status === 403) return `This key does not allow this: ${problem.detail ?? "it is forbidden"}.`;
  if (kind === "campaign-not-found") return "This campaign does not exist, or this key has no access to it.";
  if (kind === "decision-not-found") return "This decision does not exist in this campaign, or it was pruned.";
  if (status === 422 && problem.errors?.length) {
    return problem.errors.map((error) => `${error.field}: ${error.message}`).join("; ");
  }
  if (status === 503) return UNAVAILABLE[kind] ?? detail ?? "The service is not available now.";
  if (status >= 500) return `The service failed (${status}). ${detail}`.trim();
  return detail || `The service answered ${status}.`;
}

/** Returns all items of a list, page by page. */
export async function all(path, pagesMax = 20) {
  const items = [];
  let cursor = null;
  for (let page = 0; page < pagesMax; page += 1) {
    const found = await request(`${path}?limit=1000${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
    items.push(...found.items);
    cursor = found.next_cursor;
    if (!cursor) break;
  }
  return items;
}

export const campaignPath = (id) => `campaigns/${encodeURIComponent(id)}`;
export const adminPath = (id, rest) => `admin/campaigns/${encodeURIComponent(id)}/${rest}`;
