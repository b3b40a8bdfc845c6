// Times, durations, money and sizes as people read them.
import { h } from "./dom.js";
import { count } from "./text.js";

const pad = (number) => String(number).padStart(2, "0");

/** "0.2 s", "3 min 4 s", "2 h 5 min", "3 d 4 h": the two largest units. Milliseconds in. */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(Number(ms))) return "";
  const all = Math.max(0, Number(ms));
  if (all < 1000) return `${Math.round(all)} ms`;
  if (all < 10_000) return `${(all / 1000).toFixed(1)} s`;
  const seconds = Math.round(all / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** "3:12:01" or "2 d 03:12:01", for what counts down. */
export function countdown(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const clock = `${Math.floor((seconds % 86_400) / 3600)}:${pad(Math.floor((seconds % 3600) / 60))}:${pad(seconds % 60)}`;
  return seconds >= 86_400 ? `${Math.floor(seconds / 86_400)} d ${clock}` : clock;
}

/** One unit, so that a column of them stays narrow. */
export function ago(at, now) {
  const seconds = Math.max(0, Math.round((now - at) / 1000));
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

export const iso = (at) => {
  const made = new Date(Number(at));
  return Number.isNaN(made.getTime()) ? String(at) : made.toISOString();
};

export function local(at) {
  const made = new Date(Number(at));
  const today = new Date().toDateString() === made.toDateString();
  const clock = `${pad(made.getHours())}:${pad(made.getMinutes())}:${pad(made.getSeconds())}`;
  if (today) return clock;
  const year = made.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return `${made.toLocaleDateString(undefined, { day: "numeric", month: "short", year })} ${clock}`;
}

/** A point in time: local, the exact one in the title. `relative` ones are kept fresh by the page. */
export function time(at, relative = false) {
  if (at === null || at === undefined) return "";
  const made = h("time", { datetime: iso(at), title: iso(at) }, relative ? ago(at, Date.now()) : local(at));
  if (relative) made.dataset.at = String(at);
  return made;
}

/** Freshens the relative times and countdowns inside an element. */
export function freshen(element, now) {
  for (const made of element.querySelectorAll("time[data-at]")) {
    const text = ago(Number(made.dataset.at), now);
    if (made.textContent !== text) made.textContent = text;
  }
  for (const made of element.querySelectorAll("[data-until]")) {
    const left = Number(made.dataset.until) - now;
    const text = left > 0 ? countdown(left) : "expired";
    if (made.textContent !== text) made.textContent = text;
    made.classList.toggle("soon", left < 3_600_000);
  }
}

/** What is left until a deadline, counting. */
export function until(at) {
  const made = h("time", { class: "until", datetime: iso(at), title: iso(at), "data-until": at });
  made.textContent = at > Date.now() ? countdown(at - Date.now()) : "expired";
  made.classList.toggle("soon", at - Date.now() < 3_600_000);
  return made;
}

export function money(value) {
  const number = Number(value ?? 0);
  if (number === 0) return "0";
  if (number < 0.01) return number.toPrecision(2);
  return number.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: number < 1 ? 4 : 2 });
}

/** "12.3k" where a column is narrow. */
export function short(value) {
  const number = Number(value ?? 0);
  if (number < 10_000) return count(number);
  if (number < 1_000_000) return `${(number / 1000).toFixed(number < 100_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

export const plural = (number, word, more = `${word}s`) => `${count(number)} ${Number(number) === 1 ? word : more}`;
