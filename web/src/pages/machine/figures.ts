// The machine's figures, `sys/…`: what they are called, how they are written, which belong together.
import type { Figure, MetricInfo, RunMetrics } from "../../data/types";
import { asNumber, machineText, number } from "../../words";

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
const RANK_TITLES: Record<string, string> = {
  tokens_per_s: "its own speed, tokens/s",
  images_per_s: "its own speed, images/s",
  busy_percent: "busy, %",
};
const GROUPS = ["rank", "gpu", "process", "cpu", "memory", "swap", "disk", "net"];
const RANK = /^sys\/rank(\d+)\/(.+)$/;
const SLOW = 1.2; // times the median of the others, as `linnet.runs.straggler` has it
const GROUP_TITLES: Record<string, string> = {
  process: "the run itself",
  cpu: "CPU",
  memory: "memory",
  swap: "swap",
  disk: "disk",
  net: "network",
};

/** What the machine's figures of runs are: ranks and GPUs first, constants left out. */
export function machineFigures(runs: readonly RunMetrics[]): MachineFigure[] {
  const varies = new Map<string, boolean>();
  for (const { metrics } of runs) {
    for (const { key, constant, low, high } of metrics) {
      if (!key.startsWith("sys/") || (RANK.test(key) && !RANK_TITLES[RANK.exec(key)?.[2] ?? ""])) continue;
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
  const [, rank, figure] = RANK.exec(key) ?? [];
  if (rank !== undefined && figure !== undefined) {
    return { key, title: `rank ${rank}: ${RANK_TITLES[figure] ?? figure}`, group: "ranks" };
  }
  const [, index, name] = /^gpu(\d+)\/(.+)$/.exec(room) ?? [];
  if (index !== undefined && name !== undefined) {
    return { key, title: `GPU ${index}: ${GPU_TITLES[name] ?? name}`, group: `GPU ${index}` };
  }
  const group = room.split("/")[0] ?? "";
  return { key, title: TITLES[room] ?? room, group: GROUP_TITLES[group] ?? group };
}

export interface RankRow {
  rank: number;
  speed: string;
  busy: string;
  memory: string;
  gpu: string;
  /** Set where the others wait for it. */
  slow: string;
}

/** The ranks of a run that several processes trained, each with its latest figures. */
export function rankRows(metrics: readonly MetricInfo[]): RankRow[] {
  const ranks = new Map<number, Map<string, Figure>>();
  for (const { key, last } of metrics) {
    const [, rank, figure] = RANK.exec(key) ?? [];
    if (rank === undefined || figure === undefined) continue;
    const known = ranks.get(Number(rank)) ?? new Map<string, Figure>();
    ranks.set(Number(rank), known.set(figure, last));
  }
  return [...ranks]
    .sort(([a], [b]) => a - b)
    .map(([rank, figures]) => {
      const text = (name: string) => machineText(`sys/rank/${name}`, figures.get(name) ?? null);
      const unit = figures.has("images_per_s") ? "images" : "tokens";
      const slowdown = asNumber(figures.get("slowdown") ?? null);
      return {
        rank,
        speed: figures.has(`${unit}_per_s`) ? `${text(`${unit}_per_s`)} ${unit}/s` : "–",
        busy: text("busy_percent"),
        memory: text("rss"),
        gpu: [text("gpu_percent"), text("gpu_memory_used")].filter((part) => part !== "–").join(", ") || "–",
        slow: slowdown > SLOW ? `slow, ${number(slowdown, 2)} ×` : "",
      };
    });
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
