// A run's calls and events as the steps that a person reads: who decided, what ran beside what, where it waited.

const MOMENTS = new Set([
  "message_received", "budget_changed", "run_paused", "run_resumed", "ending_started", "run_finished",
  "context_summarised", "branch_skipped", "branch_taken", "approval_expired", "plan_updated", "action_skipped",
]);

const number = (actionId) => Number(String(actionId).split("/").pop());

/** Attempts with their times as numbers; an open one ends now. */
export function attemptsOf(action, now) {
  return (action.attempts_list ?? []).map((one) => {
    const from = Number(one.requested_at ?? one.started_at ?? action.started_at ?? now);
    const started = one.started_at === null || one.started_at === undefined ? from : Number(one.started_at);
    return { ...one, from, started, to: one.ended_at === null || one.ended_at === undefined ? now : Number(one.ended_at), open: one.ended_at === null || one.ended_at === undefined };
  });
}

/** When a question about an action was asked and closed. */
export function askedOf(action, decidedAt, now) {
  const asked = action.approval;
  if (!asked || asked.requested_at === null || asked.requested_at === undefined) return null;
  const n = number(String(asked.approval_id).replace("/a", "/"));
  const to = decidedAt.get(n);
  const first = attemptsOf(action, now)[0];
  // Where nobody decided, the end of the run closed it.
  const closed = first?.from ?? Number(action.finished_at ?? asked.requested_at);
  return { from: Number(asked.requested_at), to: to ?? (asked.open ? now : closed), open: Boolean(asked.open), approval: asked };
}

/** Of the timeline's entries: replies by action, decisions by question, titles by step, moments. */
export function told(entries) {
  const [replies, decidedAt, titles, moments, questions] = [new Map(), new Map(), new Map(), [], new Map()];
  for (const entry of entries) {
    const data = entry.data ?? {};
    if (entry.type === "model_replied") replies.set(Number(data.n), entry);
    if (entry.type === "approval_decided" || entry.type === "approval_expired") {
      if (data.closes !== false) decidedAt.set(Number(data.n), Number(entry.at));
    }
    if (entry.type === "step_started") titles.set(Number(data.step ?? entry.step), data.title);
    if (entry.type === "approval_requested" && data.approval && !data.approval.action) questions.set(Number(data.approval.n), entry);
    const own = entry.type === "approval_requested" && !data.approval?.action;
    const said = entry.type === "approval_decided" && questions.has(Number(data.n));
    if (MOMENTS.has(entry.type) || own || said) moments.push(entry);
  }
  return { replies, decidedAt, titles, moments };
}

/**
 * [{kind: "step", steps, title, actions, start, end} | {kind: "moment", entry}] in order of time.
 * Steps of a plan that run at the same time stand in one, so that what ran together is seen together.
 */
export function story(actions, entries, now) {
  const { replies, decidedAt, titles, moments } = told(entries);
  const groups = new Map();
  for (const action of actions) {
    const step = Number(action.step ?? 0);
    const name = action.kind === "compensation" ? `undo ${step}` : action.kind === "notice" ? `notice ${step}` : step;
    if (!groups.has(name)) groups.set(name, { kind: "step", steps: [step], undo: action.kind === "compensation", notice: action.kind === "notice", actions: [] });
    groups.get(name).actions.push(action);
  }
  const made = [...groups.values()].map((group) => {
    const times = group.actions.flatMap((action) => {
      const asked = askedOf(action, decidedAt, now);
      return [...attemptsOf(action, now).flatMap(({ from, to }) => [from, to]), ...(asked ? [asked.from, asked.to] : []), ...[action.started_at, action.finished_at].filter((at) => at !== null && at !== undefined).map(Number)];
    });
    const start = times.length ? Math.min(...times) : null;
    return { ...group, start, end: times.length ? Math.max(...times) : null, title: titles.get(group.steps[0]) };
  });
  const known = made.filter(({ start }) => start !== null).sort((a, b) => a.start - b.start || a.steps[0] - b.steps[0]);
  const steps = [];
  for (const group of known) {
    const last = steps.at(-1);
    const decides = (one) => one.actions.some(({ kind }) => kind === "model");
    if (last && !last.undo && !group.undo && !last.notice && !group.notice && group.start < last.end && !decides(last) && !decides(group)) {
      last.steps.push(...group.steps);
      last.titles = [...(last.titles ?? [last.title]), group.title];
      last.actions.push(...group.actions);
      last.end = Math.max(last.end, group.end);
    } else {
      steps.push({ ...group, actions: [...group.actions], steps: [...group.steps] });
    }
  }
  const unstarted = made.filter(({ start }) => start === null);
  const all = [...steps.map((step) => ({ at: step.start, order: 1, item: step })), ...moments.map((entry) => ({ at: Number(entry.at), order: entry.type === "run_finished" ? 2 : 0, item: { kind: "moment", entry } }))];
  all.sort((a, b) => a.at - b.at || a.order - b.order);
  return { items: [...all.map(({ item }) => item), ...unstarted], replies, decidedAt };
}

/** Milliseconds in which a person was asked: overlapping questions count once. */
export function waitedForPeople(actions, entries, now) {
  const { decidedAt } = told(entries);
  const ended = entries.find(({ type }) => type === "ending_started" || type === "run_finished");
  const last = ended ? Number(ended.at) : now;
  const pairs = actions.map((action) => askedOf(action, decidedAt, now)).filter(Boolean).map(({ from, to }) => [from, to]);
  for (const entry of entries) {
    const asked = entry.type === "approval_requested" ? entry.data?.approval : null;
    if (asked && !asked.action) pairs.push([Number(entry.at), decidedAt.get(Number(asked.n)) ?? Math.max(last, Number(entry.at))]);
  }
  let [sum, end] = [0, 0];
  for (const [from, to] of pairs.sort((a, b) => a[0] - b[0])) {
    sum += Math.max(0, to - Math.max(from, end));
    end = Math.max(end, to);
  }
  return sum;
}
