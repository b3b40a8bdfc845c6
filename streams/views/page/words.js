// The words of the contract as sentences for people. One table each.

export const STATUS = {
  running: { word: "Running", tone: "run" },
  waiting_approval: { word: "Waits for a person", tone: "wait" },
  compensating: { word: "Undoing", tone: "undo" },
  done: { word: "Done", tone: "good" },
  failed: { word: "Failed", tone: "bad" },
  cancelled: { word: "Cancelled", tone: "plain" },
};

export const KIND = {
  action: { word: "Approval", wait: "needs approval", icon: "person" },
  clarification: { word: "Question", wait: "asks a question", icon: "note" },
  authority: { word: "Authority", wait: "asks for authority", icon: "flag" },
  handover: { word: "Handover", wait: "handed over to a person", icon: "undo" },
  in_doubt: { word: "In doubt", wait: "a person must say whether it happened", icon: "wait" },
  budget: { word: "Budget", wait: "budget used up", icon: "bell" },
};

/** What a run waits for that is no person. */
export const WAIT = {
  retry: { word: "To try again", icon: "wait" },
  breaker: { word: "A service that is unavailable", icon: "cross" },
  model: { word: "A model that is away", icon: "spark" },
};

export const DECISION = {
  approve: { word: "Approve", done: "Approved" },
  modify: { word: "Approve with changes", done: "Approved with changes" },
  reject: { word: "Reject", done: "Rejected" },
  answer: { word: "Answer", done: "Answered" },
  retry: { word: "Try again", done: "Tried again" },
  mark_done: { word: "It happened", done: "Marked as done" },
  mark_not_done: { word: "It did not happen: call again", done: "Marked as not done" },
  extend: { word: "Extend budget", done: "Budget extended" },
  cancel_run: { word: "Cancel run", done: "Run cancelled" },
};

export const NEEDS_REASON = new Set(["reject", "modify", "mark_done", "mark_not_done"]);

export const EFFECT = {
  read_only: { word: "reads", meaning: "Changes nothing outside: it may be called again at any time." },
  idempotent: { word: "writes once", meaning: "A second call with the same key has one effect." },
  external: { word: "writes, no promise", meaning: "Called again only after proof that nothing happened, or a person's word." },
};

export const ACTION = {
  proposed: { word: "proposed", tone: "plain", icon: "note" },
  waiting_approval: { word: "waits for a person", tone: "wait", icon: "person" },
  approved: { word: "approved", tone: "run", icon: "person" },
  rejected: { word: "rejected", tone: "bad", icon: "cross" },
  requested: { word: "called", tone: "run", icon: "wait" },
  started: { word: "running", tone: "run", icon: "wait" },
  backing_off: { word: "waits to try again", tone: "wait", icon: "wait" },
  querying: { word: "asking whether it happened", tone: "wait", icon: "wait" },
  unknown: { word: "outcome unknown", tone: "wait", icon: "wait" },
  in_doubt: { word: "in doubt", tone: "bad", icon: "wait" },
  succeeded: { word: "done", tone: "good", icon: "check" },
  failed: { word: "failed", tone: "bad", icon: "cross" },
  cancelled: { word: "cancelled", tone: "plain", icon: "cross" },
  skipped: { word: "skipped", tone: "plain", icon: "note" },
  compensating: { word: "being undone", tone: "undo", icon: "undo" },
  compensated: { word: "undone", tone: "undo", icon: "undo" },
  compensation_failed: { word: "could not be undone", tone: "bad", icon: "undo" },
};

/** What a run waits for, in words; the first of several. `approval_id` ones are people. */
export function waiting(row, remaining) {
  const made = row.waiting_for ?? [];
  if (row.quarantined) return "Quarantined: its own processing failed; see `perdure release`";
  if (!made.length) return row.paused ? "Paused" : "";
  const first = made[0];
  const more = made.length > 1 ? `, and ${made.length - 1} more` : "";
  const left = first.until ? `, ${remaining(first.until)} left` : "";
  if (Object.hasOwn(KIND, first.kind)) return KIND[first.kind].wait + more;
  if (first.kind === "retry") return `tries ${first.target ?? "it"} again${more}`;
  if (first.kind === "breaker") return `${first.target ?? "a service"} is unavailable${left}${more}`;
  if (first.kind === "model") return `the model ${first.target ?? ""} is away${more}`;
  return `${first.kind} ${first.target ?? ""}${more}`;
}

export const known = (table, name) =>
  Object.hasOwn(table, name ?? "")
    ? table[name]
    : { word: String(name ?? ""), tone: "plain", icon: "note", done: String(name ?? ""), wait: String(name ?? "") };
