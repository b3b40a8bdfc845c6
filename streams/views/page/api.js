// The view's HTTP API: answers as values that lost nothing, errors as sentences.
import { forSending, received, stringify } from "./exact.js";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** No answer at all: the server, or the way to it, is away. */
export class Away extends Error {
  constructor(message = "The server does not answer. Nothing is lost: this page goes on by itself when it is back.", status = 0) {
    super(message);
    this.status = status;
  }
}

const AGAIN_MS = 1500;
let again = () => null;
let waiting = null;

/** What is done a moment after the server has said "not yet": a view that starts, a partition on its way. */
export const whenNotYet = (action) => (again = action);

function notYet() {
  waiting ??= setTimeout(() => {
    waiting = null;
    again();
  }, AGAIN_MS);
}

const SAID = {
  403: "Your role does not allow this. Ask whoever gives out the tokens for the role it needs.",
  404: "There is nothing under this address.",
  413: "This is too large to send. Shorten it, or put it into a file and use the command line.",
  429: "Too many requests. Wait a few seconds, then try again.",
  503: "The view can't answer yet. It tries again by itself.",
};

async function asked(method, address, body, signal) {
  let answer;
  try {
    answer = await fetch(address, {
      method,
      signal,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away();
  }
  const text = await answer.text().catch(() => { throw new Away(); });
  let value = null;
  try {
    value = text ? received(text) : null;
  } catch {
    if (answer.ok) throw new ApiError(answer.status, "not_json", "The server's answer is no JSON. Check that this address is Perdure's.");
  }
  if (answer.ok) return value;
  const said = value?.error ?? {};
  if (answer.status === 503 && method === "GET") {
    notYet();
    throw new Away(said.message || SAID[503], 503);
  }
  throw new ApiError(answer.status, said.code ?? "", said.message || SAID[answer.status] || `The server answered ${answer.status}.`);
}

export const get = (address, signal) => asked("GET", address, undefined, signal);
export const post = (address, body) => asked("POST", address, body);

/** A query string; null and empty ones left out, lists repeated. */
export function query(parts) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(parts)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") made.append(name, one);
    }
  }
  const text = made.toString();
  return text ? `?${text}` : "";
}

const segments = (...ids) => ids.map((id) => id.split("/").map(encodeURIComponent).join("/")).join("/");

export const runPath = (runId, ...more) => `/api/runs/${segments(runId, ...more)}`;

/** Sends a decision or control request and waits for its verdict. */
async function judged(runId, address, body) {
  const { request_id: requestId } = await post(address, body);
  for (let tries = 0; tries < 4; tries++) {
    try {
      return await get(`/api/verdicts/${segments(runId)}/${encodeURIComponent(requestId)}?wait=10`);
    } catch (error) {
      if (error instanceof Away && error.status !== 503) throw error;
      if (error.status !== 404 && error.status !== 503) throw error;
    }
  }
  throw new ApiError(504, "no_verdict", "Sent, but no engine has answered for 40 seconds. It will count when one runs: see Health.");
}

export function decide(approval, decision) {
  const body = { decision: decision.decision, digest: approval.digest };
  for (const name of ["reason", "budget"]) if (decision[name] !== undefined) body[name] = decision[name];
  for (const name of ["arguments", "answer"]) {
    if (decision[name] !== undefined) body[name] = forSending(decision[name]);
  }
  return judged(approval.run_id, `/api/approvals/${segments(approval.approval_id)}/decisions`, body);
}

export const control = (runId, request) =>
  judged(runId, runPath(runId, "control"), { ...request, ...("content" in request ? { content: forSending(request.content) } : {}) });
