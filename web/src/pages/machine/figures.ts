// The machine's figures, `sys/…`: what they are called, how they are written, which belong together.
import type { Figure, MetricInfo, RunMetrics } from "../../data/types";
import { asNumber, number, size } from "../../words";

export interface MachineFigure {
  key: string;
  title: string;
  group: string;
}

const TITLES: Record<string, string> = {
  "cpu/percent": "CPU, %",
  "cpu/user": "CPU in programs, %",
  "cpu/system": "CPU in the kernel, %",
  "memory/used": "memory used",
  "memory/percent": "memory, %",
  "swap/used": "swap used",
  "swap/percent": "swap, %",
  "process/cpu": "CPU of the run, %",
  "process/rss": "memory of the run",
  "process/threads": "threads of the run",
  "disk/free": "disk free",
  "disk/percent": "disk, %",
  "disk/read_bps": "read from disk, bytes/s",
  "disk/write_bps": "written to disk, bytes/s",
  "net/recv_bps": "received, bytes/s",
  "net/sent_bps": "sent, bytes/s",
};
const GPU_TITLES: Record<string, string> = {
  percent: "use, %",
  memory_used: "memory used",
  memory_percent: "memory, %",
  power: "power, W",
  temperature: "temperature, °C",
};
const GROUPS = ["gpu", "process", "cpu", "memory", "swap", "disk", "net"];
const GROUP_TITLES: Record<string, string> = {
  process: "the run itself",
  cpu: "CPU",
  memory: "memory",
  swap: "swap",
  disk: "disk",
  net: "network",
};

/** What the machine's figures of runs are: GPUs first, constants left out. */
export function machineFigures(runs: readonly RunMetrics[]): MachineFigure[] {
  const varies = new Map<string, boolean>();
  for (const { metrics } of runs) {
    for (const { key, constant, low, high } of metrics) {
      if (!key.startsWith("sys/")) continue;
      varies.set(key, varies.get(key) || (!constant && low !== high) || false);
    }
  }
  const figures = [...varies].flatMap(([key, changes]) => (changes ? [describe(key)] : []));
  const rankOf = ({ key }: MachineFigure) => {
    const room = key.slice("sys/".length);
    const group = GROUPS.findIndex((name) => room.startsWith(name));
    const within = Object.keys(TITLES).indexOf(room);
    return (group < 0 ? GROUPS.length : group) * 100 + (within < 0 ? 50 : within);
  };
  return figures.sort((a, b) => rankOf(a) - rankOf(b) || a.key.localeCompare(b.key, "en", { numeric: true }));
}

function describe(key: string): MachineFigure {
  const room = key.slice("sys/".length);
  const [, index, name] = /^gpu(\d+)\/(.+)$/.exec(room) ?? [];
  if (index !== undefined && name !== undefined) {
    return { key, title: `GPU ${index}: ${GPU_TITLES[name] ?? name}`, group: `GPU ${index}` };
  }
  const group = room.split("/")[0] ?? "";
  return { key, title: TITLES[room] ?? room, group: GROUP_TITLES[group] ?? group };
}

/** A figure as people read it, by what it counts. */
export function machineText(key: string, value: Figure): string {
  const known = asNumber(value);
  if (value === null || Number.isNaN(known)) return "–";
  if (/_bps$/.test(key)) return `${size(known)}/s`;
  if (/\/(used|total|free|rss|memory_used|memory_total)$/.test(key)) return size(known);
  if (/\/(percent|user|system|cpu)$/.test(key)) return `${number(known, 3)} %`;
  if (/\/power$/.test(key)) return `${number(known, 3)} W`;
  if (/\/temperature$/.test(key)) return `${number(known, 3)} °C`;
  return number(value);
}

export interface LatestColumn {
  title: string;
  text(metrics: readonly MetricInfo[]): string;
}

/** The latest figures in few columns: the GPUs, CPU, memory, disk. */
export function latestColumns(figures: readonly MachineFigure[]): LatestColumn[] {
  const last = (metrics: readonly MetricInfo[], key: string) =>
    metrics.find((metric) => metric.key === key)?.last ?? null;
  const gpus = [...new Set(figures.flatMap(({ key }) => /^sys\/gpu\d+/.exec(key)?.[0] ?? []))];
  const plain = (title: string, key: string): LatestColumn => ({
    title,
    text: (metrics) => machineText(key, last(metrics, key)),
  });
  const of = (title: string, key: string, total: string): LatestColumn => ({
    title,
    text: (metrics) => {
      const whole = last(metrics, total);
      return machineText(key, last(metrics, key)) + (whole === null ? "" : ` of ${machineText(total, whole)}`);
    },
  });
  return [
    ...gpus.flatMap((gpu) => [
      plain(`GPU ${gpu.slice("sys/gpu".length)}`, `${gpu}/percent`),
      of(`its memory`, `${gpu}/memory_used`, `${gpu}/memory_total`),
      plain("power", `${gpu}/power`),
      plain("temperature", `${gpu}/temperature`),
    ]),
    plain("CPU", "sys/cpu/percent"),
    plain("CPU of the run", "sys/process/cpu"),
    of("memory", "sys/memory/used", "sys/memory/total"),
    plain("memory of the run", "sys/process/rss"),
    of("disk free", "sys/disk/free", "sys/disk/total"),
  ];
}
