// Asks again and again, but never much: not in a hidden tab, less often where an answer takes long, and after a failure
// with growing patience.

const SHARE_OF_TIME = 20;
const SLOWEST_SECONDS = 120;
const PAUSE_MAX_SECONDS = 30;

/** One thing that is kept up to date: `load` shows it and says for how many milliseconds the service was asked;
    `failed` is told what went wrong. `seconds` may be a function, asked after each time. */
export class Refreshing {
  constructor(load, { seconds, failed }) {
    this.load = load;
    this.seconds = seconds;
    this.failed = failed;
    this.failures = 0;
    this.running = null;
    this.stopped = false;
    this.paused = false;
    this.timer = null;
    this.woken = () => this.wake();
    document.addEventListener("visibilitychange", this.woken);
    window.addEventListener("online", this.woken);
  }

  /** Does it now, and from now on. Two at once are one. */
  now() {
    this.running ??= this.once().finally(() => {
      this.running = null;
    });
    return this.running;
  }

  async once() {
    clearTimeout(this.timer);
    let pause;
    try {
      const asked = await this.load();
      this.failures = 0;
      const wanted = typeof this.seconds === "function" ? this.seconds() : this.seconds;
      pause = Math.min(SLOWEST_SECONDS, Math.max(wanted, (asked / 1000) * SHARE_OF_TIME));
    } catch (error) {
      if (this.stopped) return;
      this.failures += 1;
      pause = Math.min(PAUSE_MAX_SECONDS, Math.max(error.retrySeconds ?? 0, 2 ** this.failures));
      this.failed(error, pause);
    }
    if (!this.stopped) this.timer = setTimeout(() => this.tick(), 1000 * pause);
  }

  tick() {
    if (!document.hidden && !this.paused) this.now();
  }

  wake() {
    if (!document.hidden && !this.paused && !this.stopped) this.now();
  }

  setPaused(paused) {
    this.paused = paused;
    if (paused) clearTimeout(this.timer);
    else this.wake();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.woken);
    window.removeEventListener("online", this.woken);
  }
}
