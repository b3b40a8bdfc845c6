// A time axis on which short calls can be seen beside long waits: what nobody worked in is cut short.

/** Overlapping [from, to] pairs as pairs that do not overlap, in order. */
export function merged(pairs) {
  const made = [];
  for (const [from, to] of [...pairs].sort((a, b) => a[0] - b[0])) {
    const last = made.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else made.push([from, to]);
  }
  return made;
}

/**
 * Places of times between 0 and 1. `busy`: pairs in which something ran; between them time is
 * drawn at most half as long as all that ran. `cuts`: the places where it was cut, with how long.
 */
export function scale(start, end, busy) {
  const spans = merged(busy.map(([from, to]) => [Math.max(from, start), Math.min(Math.max(to, from), end)]));
  const worked = Math.max(1, spans.reduce((sum, [from, to]) => sum + to - from, 0));
  const points = [[start, 0]];
  const cuts = [];
  let drawn = 0;
  const forward = (to, idle) => {
    const long = to - points.at(-1)[0];
    if (long <= 0) return;
    const kept = idle ? Math.min(long, worked / 2) : long;
    if (kept < long) cuts.push({ at: drawn + kept / 2, ms: long });
    drawn += kept;
    points.push([to, drawn]);
  };
  for (const [from, to] of spans) {
    forward(from, true);
    forward(to, false);
  }
  forward(end, true);
  const all = drawn || 1;
  const place = (at) => {
    if (at <= start) return 0;
    for (let i = 1; i < points.length; i++) {
      const [[a, x], [b, y]] = [points[i - 1], points[i]];
      if (at <= b) return (x + ((at - a) / (b - a)) * (y - x)) / all;
    }
    return 1;
  };
  return { place, cuts: cuts.map(({ at, ms }) => ({ at: at / all, ms })) };
}
