// What is live on a page: values as text, the strip of SMs, alarms. What is read stays where it is: cells change,
// rows do not move. Colours by choice, times by this browser's clock. Nothing is asked of another address.
"use strict";

const THEME = "pdmuxd-theme";
const PICTURE_PERIOD_MS = 15000;
const OLD_MS = 30000;

function showTheme() {
  const button = document.getElementById("theme");
  if (!button) return;
  const dark = () => document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    const wanted = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = wanted;
    document.cookie = `${THEME}=${wanted}; path=/ui; max-age=31536000; samesite=strict`;
    name();
  });
  name();
}

function showTimes(within) {
  const today = new Date().toDateString();
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
    const day = at.toLocaleDateString([], { day: "numeric", month: "short" });
    time.textContent = at.toDateString() === today ? clock : `${day} ${clock}`;
  }
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function showStrip(strip) {
  const svg = document.querySelector("#strip svg");
  if (!svg || !strip) return;
  svg.setAttribute("viewBox", `0 0 ${strip.total} 10`);
  for (const rect of svg.querySelectorAll("rect:not([data-strip])")) rect.setAttribute("width", strip.total);
  svg.querySelector("[data-strip=prefill]").setAttribute("width", strip.prefill);
  const decode = svg.querySelector("[data-strip=decode]");
  decode.setAttribute("x", strip.total - strip.decode);
  decode.setAttribute("width", strip.decode);
  svg.querySelector("[data-strip=boundary]").setAttribute("d", `M${strip.boundary ?? -1} 0v10`);
}

function showTenants(tenants) {
  const shown = [...document.querySelectorAll("tr[data-tenant]")];
  for (const row of shown) {
    const found = tenants[row.dataset.tenant];
    row.classList.toggle("stale", !found);
    if (!found) continue;
    row.dataset.verdict = found.verdict;
    for (const cell of row.querySelectorAll("[data-key]")) setText(cell, found[cell.dataset.key]);
  }
  const note = document.getElementById("resort");
  if (!note) return;
  const wanted = Object.keys(tenants).slice(0, Math.max(shown.length, 1));
  const names = new Set(shown.map(row => row.dataset.tenant));
  const misses = wanted.filter(name => tenants[name].verdict === "missed");
  note.hidden = misses.every(name => names.has(name)) && (shown.length > 0 || wanted.length === 0);
}

function showAlarms(alarms) {
  const list = document.getElementById("alarm-list");
  const key = alarms.map(alarm => `${alarm.id} ${alarm.text}`).join("\n");
  if (!list || list.dataset.shown === key) return;
  list.dataset.shown = key;
  list.replaceChildren(...(alarms.length ? alarms : [null]).map(alarm => {
    const item = document.createElement("li");
    item.className = alarm ? alarm.severity : "empty";
    if (!alarm) {
      item.textContent = "No alarm is raised.";
      return item;
    }
    const [what, text, since] = ["b", "span", "time"].map(name => document.createElement(name));
    what.textContent = alarm.severity;
    text.textContent = alarm.text;
    since.dateTime = alarm.since;
    item.append(what, " ", text, " ", since);
    return item;
  }));
  showTimes(list);
}

function show(message) {
  for (const element of document.querySelectorAll("[data-live]")) setText(element, message.values[element.dataset.live]);
  const verdict = document.getElementById("verdict");
  if (verdict) verdict.className = `verdict ${message.state}`;
  showStrip(message.strip);
  showTenants(message.tenants);
  showAlarms(message.alarms);
}

// A browser keeps six connections to one address for all its tabs: a tab that is not seen gives its own back.
function follow(address) {
  const link = document.getElementById("link");
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.onmessage = event => { link.hidden = true; show(JSON.parse(event.data)); };
    source.onerror = () => { link.hidden = false; link.textContent = "No connection to the daemon"; };
  };
  const close = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

// An answer is a piece of a page, or a page with a piece of the same id.
function refresh(place) {
  setInterval(async () => {
    if (document.hidden || !getSelection().isCollapsed) return;
    const answer = await fetch(place.dataset.refresh || location.href).catch(() => null);
    if (!answer?.ok || answer.redirected) return;
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...((place.id && parsed.getElementById(place.id)) || parsed.body).childNodes);
    showTimes(place);
  }, PICTURE_PERIOD_MS);
}

// Who comes back to a tab sees how things are now; what was typed into a form is kept instead.
function loadAgainWhenSeen() {
  const loadedAt = Date.now();
  const isTyped = () => [...document.querySelectorAll("main :is(input, textarea)")].some(field =>
    field.value !== field.defaultValue || field.checked !== field.defaultChecked);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && Date.now() - loadedAt > OLD_MS && !isTyped()) location.reload();
  });
}

showTheme();
showTimes(document);
document.querySelector("[aria-current=page]")?.scrollIntoView({ inline: "center", block: "nearest" });
for (const place of document.querySelectorAll("[data-refresh]")) refresh(place);
if (document.body.dataset.again !== undefined) loadAgainWhenSeen();
if (document.body.dataset.stream) follow(document.body.dataset.stream);
