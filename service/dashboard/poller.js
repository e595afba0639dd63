// Repeats a request: not in a hidden tab, less often if responses are slow, and with growing pauses after failures.

// The pause is at least this many times the duration of the request.
const PAUSE_FACTOR = 20;
const SLOWEST_SECONDS = 120;
const PAUSE_MAX_SECONDS = 30;

/** Calls `load`, which returns the milliseconds its requests took, every `seconds` (a number or a function);
    calls `failed` with an error and the pause before the next attempt. */
export class Poller {
  constructor(load, { seconds, failed }) {
    this.load = load;
    this.seconds = seconds;
    this.failed = failed;
    this.failures = 0;
    this.running = null;
    this.stopped = false;
    this.paused = false;
    this.timer = null;
    this.onWake = () => this.wake();
    document.addEventListener("visibilitychange", this.onWake);
    window.addEventListener("online", this.onWake);
  }

  /** Loads now and from now on; does nothing while a load is running. */
  now() {
    this.running ??= this.once().finally(() => {
      this.running = null;
    });
    return this.running;
  }

  /** Loads once more, after the load that may be running. */
  async again() {
    await this.running;
    return this.stopped ? undefined : this.now();
  }

  async once() {
    clearTimeout(this.timer);
    let pause;
    try {
      const took = await this.load();
      this.failures = 0;
      const seconds = typeof this.seconds === "function" ? this.seconds() : this.seconds;
      pause = Math.min(SLOWEST_SECONDS, Math.max(seconds, (took / 1000) * PAUSE_FACTOR));
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
    document.removeEventListener("visibilitychange", this.onWake);
    window.removeEventListener("online", this.onWake);
  }
}
