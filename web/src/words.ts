// The one place that writes numbers, times and sizes for people; the same words as linnet/board/words.py.
import type { Figure } from "./data/types";

const DASH = "–";
const COUNT_UNITS: readonly [string, number][] = [
  ["T", 1e12],
  ["G", 1e9],
  ["M", 1e6],
  ["k", 1e3],
];

/** A figure of the server as a number; NaN for none. */
export function asNumber(figure: Figure): number {
  if (typeof figure === "number") return figure;
  if (figure === "inf") return Number.POSITIVE_INFINITY;
  return figure === "-inf" ? Number.NEGATIVE_INFINITY : Number.NaN;
}

/** A number to `digits` significant figures, without needless zeros; a dash for none. */
export function number(value: Figure | undefined, digits = 4): string {
  if (value === null || value === undefined) return DASH;
  const known = asNumber(value);
  if (Number.isNaN(known)) return "NaN";
  if (!Number.isFinite(known)) return known > 0 ? "∞" : "-∞";
  const size = Math.abs(known);
  if (size && (size < 1e-4 || size >= 1e9)) {
    const [mantissa = "", exponent = ""] = known.toExponential(digits - 1).split("e");
    return `${trimZeros(mantissa)}e${Number(exponent)}`;
  }
  if (size >= 10 ** (digits - 1)) return grouped(known, 0);
  const places = size ? digits - 1 - Math.floor(Math.log10(size)) : 0;
  return trimZeros(known.toFixed(Math.min(20, Math.max(0, places))));
}

/** A count with separators: `12,400`. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  return grouped(value, 0);
}

/** A large count in few characters: `1.25M`, `870k`. */
export function compact(value: number): string {
  if (!Number.isFinite(value)) return DASH;
  for (const [unit, size] of COUNT_UNITS) {
    if (Math.abs(value) >= size * 10 || (Math.abs(value) >= size && size > 1e3)) return number(value / size, 3) + unit;
  }
  return count(Math.round(value));
}

/** A number with every digit that it has, for tables and copies. */
export function exact(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "-∞";
}

/** A stretch of time in its two largest units: `1 d 4 h`, `3 m 12 s`, `4.2 s`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds) || seconds < 0) return DASH;
  if (seconds < 60) return seconds < 10 ? `${seconds.toFixed(1)} s` : `${seconds.toFixed(0)} s`;
  const whole = Math.floor(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} m ${two(whole % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${two(minutes % 60)} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How long ago, in one unit: `now`, `12 s`, `4 m`, `3 h`, `9 d`. */
export function age(seconds: number): string {
  if (!Number.isFinite(seconds)) return DASH;
  if (seconds < 2) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** A Unix time as date and time of day, local: `2026-03-04 05:06:07`; a dash for one beyond every calendar. */
export function moment(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return DASH;
  const at = new Date(seconds * 1000);
  if (Number.isNaN(at.getTime())) return DASH;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(at)}`;
}

/** Hours, minutes and seconds of a date. */
export function clock(at: Date, seconds = true): string {
  const minutes = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${minutes}:${two(at.getSeconds())}` : minutes;
}

/** A size in bytes: `12.4 MB`. */
export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return DASH;
  let scaled = bytes;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(scaled) < 1000)
      return unit === "B" || scaled >= 100 ? `${scaled.toFixed(0)} ${unit}` : `${scaled.toFixed(1)} ${unit}`;
    scaled /= 1000;
  }
  return `${scaled.toFixed(1)} TB`;
}

/** "1 run", "2 runs"; `many`: what more than one are called, where that is not the noun with an s. */
export function plural(amount: number, noun: string, many = `${noun}s`): string {
  return `${count(amount)} ${amount === 1 ? noun : many}`;
}

/** A number with separators of thousands and so many decimals. */
export function grouped(value: number, places: number): string {
  const [whole = "", decimals] = Math.abs(value).toFixed(places).split(".");
  const separated = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  const text = decimals ? `${separated}.${decimals}` : separated;
  return value < 0 && /[1-9]/.test(text) ? `-${text}` : text;
}

function trimZeros(text: string): string {
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** A figure of the machine, `sys/…`, as people read it, by what it counts. */
export function machineText(key: string, value: Figure): string {
  const known = asNumber(value);
  if (value === null || Number.isNaN(known)) return "–";
  if (/_bps$/.test(key)) return `${size(known)}/s`;
  if (/\/(used|total|free|rss|(gpu_)?memory_used|(gpu_)?memory_total)$/.test(key)) return size(known);
  if (/\/(percent|user|system|cpu|busy_percent|gpu_percent)$/.test(key)) return `${number(known, 3)} %`;
  if (/\/power$/.test(key)) return `${number(known, 3)} W`;
  if (/\/temperature$/.test(key)) return `${number(known, 3)} °C`;
  return number(value);
}

/** A value of any metric, in short. */
export function metricText(key: string, value: Figure | undefined): string {
  return key.startsWith("sys/") ? machineText(key, value ?? null) : number(value);
}
