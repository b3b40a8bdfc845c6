// One stream of changes for the whole page, and the banner when it breaks.
//
// A browser's own reconnecting gives up on some answers (a proxy's 502, a restarting server), so
// it is done here: after a break everything shown is asked for again, hence no `Last-Event-ID`.
import { received } from "./exact.js";

const WAITS = [500, 1000, 2000, 3000];
const UNSEEN = 30_000;

export class Live {
  /** `onState("live" | "away")`; listeners: run, approval, stats, back. */
  constructor(onState) {
    this.onState = onState;
    this.listeners = new Map();
    this.tries = 0;
    this.wasAway = false;
    this.timer = null;
    this.waiting = new Map();
    this.frame = null;
    // A browser has six connections for all pages of a server: one that nobody sees gives its own back.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.sleep);
      if (document.hidden) this.sleep = setTimeout(() => this.source && this.pause(), UNSEEN);
      else if (this.paused) this.start();
    });
  }

  pause() {
    clearTimeout(this.timer);
    this.source.close();
    this.paused = this.wasAway = true;
  }

  on(name, listener) {
    const all = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, all.add(listener));
    return () => all.delete(listener);
  }

  start() {
    clearTimeout(this.timer);
    this.source?.close();
    this.paused = false;
    const source = new EventSource("/api/changes");
    this.source = source;
    source.onopen = () => {
      this.tries = 0;
      this.onState("live");
      if (this.wasAway) this.tell("back", null);
      this.wasAway = false;
    };
    source.onerror = () => {
      source.close();
      this.wasAway = true;
      this.onState("away");
      this.timer = setTimeout(() => this.start(), WAITS[Math.min(this.tries++, WAITS.length - 1)]);
    };
    source.addEventListener("run", (event) => {
      const row = received(event.data);
      this.later(`run ${row.run_id}`, () => this.tell("run", row));
    });
    source.addEventListener("approval", (event) => {
      const made = received(event.data);
      this.later(`approval ${made.approval_id}`, () => this.tell("approval", made));
    });
    source.addEventListener("stats", (event) => this.later("stats", () => this.tell("stats", received(event.data))));
    source.addEventListener("reset", () => this.tell("back", null));
  }

  /** The newest of each, once a quarter of a second: a busy cluster must not keep the page from answering. */
  later(key, action) {
    this.waiting.set(key, action);
    this.frame ??= setTimeout(() => {
      this.frame = null;
      const all = [...this.waiting.values()];
      this.waiting.clear();
      for (const one of all) one();
    }, 250);
  }

  tell(name, value) {
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(value);
  }
}
