// The page: its fields, and what it shows of an upload.

import { cancellable, interrupted, upload } from "./upload.js";

const SPEED_WINDOW_MS = 10_000;
const TITLE = document.title;

const [form, tokenField, tokenHint, fileField, fileSize, fileHint, verbatimChoice, verbatimBox, startButton, cancelButton] =
  ["form", "token", "token-hint", "file", "file-size", "file-hint", "verbatim-choice", "verbatim", "start", "cancel"]
    .map((id) => document.getElementById(id));
const [transfer, bar, figures, status, answer] =
  ["transfer", "bar", "figures", "status", "answer"].map((id) => document.getElementById(id));

const HINT = tokenHint.textContent;

// The token lives in its field, here, and in the Authorization header only.
let token = "";
let cancellation = null;
let onSubmit = start;

/** Shows how much is sent, how fast, and how long the rest takes. */
class Meter {
  constructor(total) {
    this.total = total;
    this.sent = 0;
    this.samples = [];
    this.waiting = null;
    this.show(0);
  }

  /** A promise that is fulfilled when `sent` bytes of the file are sent. Only the last one is. */
  reached(sent) {
    return new Promise((resolve) => {
      if (this.sent >= sent) {
        resolve();
      } else {
        this.waiting = { sent, resolve };
      }
    });
  }

  show(sent) {
    const now = performance.now();
    clearTimeout(this.timer);
    this.timer = sent < this.total && setTimeout(() => this.rest(), SPEED_WINDOW_MS);
    // An upload goes on where the server has got to, before the end of what was sent: that step back is no speed.
    if (sent < this.sent) {
      this.samples = [];
    }
    this.sent = sent;
    if (this.waiting?.sent <= sent) {
      this.waiting.resolve();
    }
    this.samples.push({ now, sent });
    this.samples = this.samples.filter((sample) => now - sample.now < SPEED_WINDOW_MS);
    const [first] = this.samples;
    const speed = (sent - first.sent) / ((now - first.now) / 1000);
    const parts = [`${size(sent)} of ${size(this.total)}`, this.percent()];
    if (speed > 0) {
      parts.push(`${size(speed)}/s`);
    }
    if (speed > 0 && sent < this.total) {
      parts.push(`${duration((this.total - sent) / speed)} left`);
    }
    bar.value = sent / this.total;
    document.title = `${this.percent()} · ${TITLE}`;
    figures.textContent = parts.join(" · ");
  }

  /** Shows no speed until there is progress again. */
  rest() {
    this.samples = [];
    this.show(this.sent);
  }

  percent() {
    return `${Math.floor((100 * this.sent) / this.total)} %`;
  }

  isFull() {
    return this.sent === this.total;
  }
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), units.length - 1);
  return `${(bytes / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

function duration(seconds) {
  const whole = Math.ceil(seconds);
  const [h, min, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h} h ${min} min` : min ? `${min} min ${s} s` : `${s} s`;
}

/** The token in its field, without what people copy along. */
function typedToken() {
  return tokenField.value.trim().replace(/^Bearer\s+/i, "");
}

/** What a token is for: its middle part is readable, and only the server can tell whether it is good. Nothing, if it is not a token. */
function claimsOf(word) {
  try {
    const claims = word.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const { namespace, name, exp } = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(claims), (c) => c.charCodeAt(0))));
    return { volume: namespace && name && `${namespace}/${name}`, until: new Date(exp * 1000) };
  } catch {
    return {};
  }
}

function describeToken(hint) {
  const { volume, until } = claimsOf(typedToken());
  tokenHint.textContent = !volume ? hint
    : until < new Date() ? `This token was for ${volume}, and has expired at ${until.toLocaleTimeString()}. Ask for a new one.`
    : `For the claim ${volume}, until ${until.toLocaleTimeString()}.`;
}

/** A link may bring the token, which then leaves the address and the history: the part behind # is sent to no server. */
function takeTokenFromLink() {
  const linked = new URLSearchParams(location.hash.slice(1)).get("token");
  if (linked !== null) {
    tokenField.value = linked;
    history.replaceState(null, "", location.pathname);
    describeToken(HINT);
  }
}

/** Takes the token from its field. False, with a sentence for the user, if there is none. */
function takeToken() {
  token = typedToken();
  const isToken = /^[\w.~+/-]+$/.test(token);
  if (!isToken) {
    say("Paste the upload token: one long word of letters, digits, dots, hyphens and underscores.", "failed");
    tokenField.focus();
  }
  return isToken;
}

/** Empties the token's field, unless a link has brought another token meanwhile. */
function dropToken() {
  if (typedToken() === token) {
    tokenField.value = "";
  }
}

/** Waits for a new token in the middle of an upload. */
function askForToken() {
  say("The token has expired. Paste a new one to continue where the upload stopped.");
  dropToken();
  tokenField.disabled = startButton.hidden = false;
  startButton.textContent = "Continue";
  tokenField.focus();
  return cancellable((resolve) => {
    onSubmit = () => {
      if (takeToken()) {
        tokenField.disabled = startButton.hidden = true;
        resolve();
      }
    };
    return () => {};
  });
}

function say(words, kind = "") {
  status.textContent = words;
  status.dataset.kind = answer.dataset.kind = bar.dataset.kind = kind;
}

/** Shows how large the chosen file is. */
function showFile() {
  const [file] = fileField.files;
  verbatimChoice.hidden = true;
  verbatimBox.checked = false;
  fileSize.textContent = file ? `Size: ${size(file.size)}` : "";
  fileHint.hidden = Boolean(file);
}

function showIdle(isIdle) {
  tokenField.disabled = fileField.disabled = startButton.hidden = !isIdle;
  cancelButton.hidden = isIdle;
  startButton.textContent = "Upload";
  onSubmit = start;
}

/** Shows what the server says of the disk. */
function showAnswer(words) {
  answer.textContent = words.replace(/(\d+) bytes/g, (_, bytes) => size(Number(bytes)));
  answer.hidden = !words;
}

function showDone(file, said) {
  const { volume } = claimsOf(token);
  const [, warning] = /; warning: (.*)/.exec(said) ?? [];
  say(`Done. ${file.name} is on the volume ${volume}.${warning ? `\nWarning: ${warning}.` : ""}`, warning ? "warned" : "done");
  showAnswer(said.replace(/; warning: .*/, ""));
  dropToken();
  describeToken("Another volume needs a token of its own.");
}

async function start() {
  const [file] = fileField.files;
  answer.hidden = transfer.hidden = true;
  if (!takeToken()) {
    return;
  }
  if (!file?.size) {
    say(file ? "The file is empty." : "Choose a file.", "failed");
    fileField.focus();
    return;
  }
  cancellation = new AbortController();
  showIdle(false);
  cancelButton.focus();
  transfer.hidden = false;
  say("Asking the server…");
  const { signal } = cancellation;
  const meter = new Meter(file.size);
  let field = startButton;
  try {
    const isVerbatim = verbatimBox.checked;
    const said = await upload(file, { token: () => token, signal, meter, say, askForToken, isVerbatim });
    showDone(file, said);
  } catch (error) {
    say(signal.aborted ? "Cancelled." : error.message, "failed");
    verbatimChoice.hidden = ![400, 415].includes(error.status);
    meter.rest();
    transfer.hidden = !meter.sent;
    field = error.status === 401 ? tokenField : startButton;
  }
  clearTimeout(meter.timer);
  token = "";
  cancellation = null;
  document.title = TITLE;
  showIdle(true);
  field.focus();
}

form.onsubmit = (event) => {
  event.preventDefault();
  onSubmit();
};
cancelButton.onclick = () => cancellation.abort();
addEventListener("beforeunload", (event) => cancellation && event.preventDefault());
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dragging");
});
addEventListener("dragleave", (event) => document.body.classList.toggle("dragging", event.relatedTarget !== null));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  const { files } = event.dataTransfer;
  if (!cancellation && files.length > 1) {
    say("One volume takes one image: drop one file.", "failed");
  } else if (!cancellation && files.length === 1) {
    fileField.files = files;
    showFile();
    say("");
  }
});
addEventListener("hashchange", takeTokenFromLink);
tokenField.addEventListener("input", () => describeToken(HINT));
fileField.addEventListener("change", showFile);

showIdle(true);
describeToken(HINT);
takeTokenFromLink();
document.getElementById("host").textContent = location.host;
document.getElementById("url").textContent = new URL("v1beta1/upload", location).href;
if (interrupted()) {
  say(`The upload of ${interrupted().name} was interrupted. Choose that file again, and it continues; another file replaces it.`);
}
