// The page: which view stands under which address, and what all of them share.
import { Away, get, whenNotYet } from "./api.js";
import { approvals } from "./approvals.js";
import { agents, tools } from "./catalog.js";
import { h, icon, link, show } from "./dom.js";
import { freshen } from "./format.js";
import { health } from "./health.js";
import { Keys } from "./keys.js";
import { Live } from "./live.js";
import { login } from "./login.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { submit } from "./submit.js";
import { count } from "./text.js";

const ROUTES = [
  [/^\/$/, runs], [/^\/runs\/([^/]+)\/?$/, run], [/^\/runs\/?$/, runs], [/^\/approvals\/?$/, approvals], [/^\/approvals\/([^/]+)\/([^/]+)$/, approvals],
  [/^\/agents\/?$/, agents], [/^\/tools\/?$/, tools], [/^\/health\/?$/, health], [/^\/submit\/?$/, submit],
];
const NAV = [["/", "Runs", "list"], ["/approvals", "Approvals", "inbox"], ["/agents", "Agents", "agent"], ["/tools", "Tools", "tool"], ["/health", "Health", "pulse"]];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const banner = document.getElementById("banner");
const connection = document.getElementById("connection");

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Page {
  constructor() {
    this.main = main;
    this.me = { user: "", roles: [] };
    this.memory = new Map();
    this.list = "/"; // the list of runs as it was last filtered
    this.view = null;
    this.live = new Live((state) => this.connected(state));
    this.keys = new Keys((address) => this.go(address));
    this.decided = () => null;
  }

  may(role) {
    return (this.me.roles ?? []).includes(role);
  }

  get address() {
    return new URL(location.href);
  }

  addressOf(address) {
    return new URL(address, location.href).href;
  }

  title(text) {
    document.title = `${text} · Perdure`;
  }

  go(address) {
    if (address === location.pathname + location.search) return;
    history.pushState(null, "", address);
    this.open();
  }

  replace(address) {
    history.replaceState(history.state, "", address);
  }

  /** A fault where a view's content would stand. */
  fault(error) {
    this.fail(error);
    return h("div", { class: "empty fault-box", role: "alert" }, h("h2", null, "This can't be shown"), h("p", null, error.message),
      h("button", { type: "button", on: { click: () => this.open() } }, "Try again"));
  }

  fail(error) {
    if (error.status === 401) this.signIn();
  }

  open() {
    this.view?.close();
    this.view = null;
    main.scrollTop = 0;
    const found = ROUTES.map(([pattern, view]) => [location.pathname.match(pattern), view]).find(([match]) => match);
    for (const one of nav.querySelectorAll("a")) {
      const href = one.getAttribute("href");
      const here = href === "/" ? /^\/(runs.*)?$/.test(location.pathname) : location.pathname.startsWith(href);
      here ? one.setAttribute("aria-current", "page") : one.removeAttribute("aria-current");
    }
    if (!found) {
      show(main, h("div", { class: "empty" }, h("h1", null, "No such page"), h("p", null, link("/", null, "All runs"))));
      this.title("No such page");
      return;
    }
    const [match, view] = found;
    this.view = view(this, ...match.slice(1).map(decoded));
    this.title(this.view.title);
  }

  connected(state) {
    const away = state === "away";
    connection.className = `connection ${state}`;
    connection.querySelector(".connection-word").textContent = away ? "Away" : "Live";
    clearTimeout(this.bannerTimer);
    if (!away) {
      banner.hidden = true;
      return;
    }
    // A moment's break is no news; and a session that has ended looks the same from here.
    this.bannerTimer = setTimeout(async () => {
      show(banner, "The server does not answer. Nothing is lost: what is shown may be old, and the page goes on by itself when the server is back.");
      banner.hidden = false;
      try {
        await get("/api/me");
        show(banner, "The view has just started and reads its tables. Nothing is lost: the page goes on by itself when it is ready.");
      } catch (error) {
        if (error.status === 401) this.signIn();
      }
    }, 700);
  }

  async signIn() {
    if (this.signingIn) return;
    this.signingIn = true;
    this.view?.close();
    this.view = null;
    banner.hidden = true;
    await login(main);
    this.signingIn = false;
    await this.start();
  }

  async badge() {
    try {
      const { total } = await get("/api/approvals?limit=1");
      const made = nav.querySelector(".badge");
      made.textContent = Number(total) ? count(total) : "";
      made.setAttribute("aria-label", `${total} open`);
    } catch (error) {
      if (error.status === 401) this.signIn();
    }
  }

  async start() {
    const early = location.pathname === "/"; // the list needs no roles: it is asked for at once
    if (early) this.open();
    try {
      this.me = await get("/api/me");
    } catch (error) {
      if (error.status === 401) return this.signIn();
      if (!(error instanceof Away)) return void show(main, this.fault(error));
      this.connected("away");
    }
    document.getElementById("person").textContent = this.me.user ?? "";
    if (!early) this.open();
    this.badge();
    this.live.start();
    return undefined;
  }
}

function drawNav() {
  show(nav, NAV.map(([href, word, name]) => link(href, { class: "nav-link" }, icon(name), h("span", { class: "nav-word" }, word), href === "/approvals" ? h("span", { class: "badge number" }) : null)),
    link("/submit", { class: "nav-link nav-submit", title: "Submit a task (n)" }, icon("plus"), h("span", { class: "nav-word" }, "Submit")));
}

function themeButton() {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const draw = () => show(button, icon(isDark() ? "sun" : "moon"));
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("perdure.theme", document.documentElement.dataset.theme);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    draw();
  });
  dark.addEventListener("change", draw);
  draw();
}

const page = new Page();
drawNav();
themeButton();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its # would count as a new address
  main.focus();
});
document.getElementById("help").addEventListener("click", () => page.keys.help());
document.addEventListener("click", (event) => {
  const made = event.target.closest?.("a[data-inside], a.brand");
  if (!made || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  page.go(made.getAttribute("href"));
});
addEventListener("popstate", () => page.open());
whenNotYet(() => page.live.tell("back", null));
page.live.on("approval", () => page.badge());
page.live.on("back", () => (page.badge(), page.me.user || get("/api/me").then((me) => (page.me = me))));
setInterval(() => document.hidden || freshen(document.body, Date.now()), 1000);
page.start();
