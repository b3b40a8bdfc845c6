// The last hour in small: what started, finished and failed, a bar a minute.
import { s } from "./dom.js";

/** A minute's ends, each counted once: the API's `finished` are all that ended, the failed ones too. */
export const ends = (one) => {
  const failed = Number(one.failed ?? 0);
  return { finished: Math.max(0, Number(one.finished ?? 0) - failed), failed };
};

/** A line of bars, newest on the right. */
export function spark(rates, width = 180, height = 28) {
  const all = rates.slice(-60).map(ends);
  const most = Math.max(1, ...all.map((one) => one.finished + one.failed));
  const step = width / 60;
  const bar = (x, y, tall, name) => s("rect", { x: x.toFixed(2), y: y.toFixed(2), width: (step - 1).toFixed(2), height: tall.toFixed(2), class: name });
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "presentation" },
    s("line", { x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5, class: "spark-base" }),
    all.flatMap((one, i) => {
      const x = (60 - all.length + i) * step;
      const good = (one.finished / most) * (height - 2);
      const bad = (one.failed / most) * (height - 2);
      return [good ? bar(x, height - good, good, "spark-good") : null, bad ? bar(x, height - good - bad, bad, "spark-bad") : null];
    }));
}

/** A larger chart of one number a minute, with its largest value. */
export function series(rates, names, label, width = 560, height = 90) {
  const all = rates.slice(-60);
  const most = Math.max(1, ...all.map((one) => names.reduce((sum, name) => sum + Number(one[name] ?? 0), 0)));
  const step = width / 60;
  const last = all.at(-1);
  return s("svg", { viewBox: `0 -8 ${width} ${height + 24}`, class: "series", role: "img", "aria-label": `${label}: ${names.map((name) => `${last?.[name] ?? 0} ${name}`).join(", ")} in the last minute, at most ${most} a minute` },
    s("line", { x1: 0, x2: width, y1: height, y2: height, class: "spark-base" }),
    s("line", { x1: 0, x2: width, y1: 8, y2: 8, class: "series-top" }),
    s("text", { x: width, y: 3, "text-anchor": "end", class: "series-text" }, `${most}/min`),
    s("text", { x: 0, y: height + 13, class: "series-text" }, "60 min ago"),
    s("text", { x: width, y: height + 13, "text-anchor": "end", class: "series-text" }, "now"),
    all.flatMap((one, i) => {
      let base = height;
      return names.map((name) => {
        const tall = (Number(one[name] ?? 0) / most) * (height - 8);
        base -= tall;
        return tall ? s("rect", { x: ((60 - all.length + i) * step).toFixed(2), y: base.toFixed(2), width: (step - 1.5).toFixed(2), height: tall.toFixed(2), class: `series-${name}` }) : null;
      });
    }));
}
