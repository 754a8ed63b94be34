import type { RunDetail } from "../../data/types";

export type Tab =
  | "charts"
  | "config"
  | "samples"
  | "checkpoints"
  | "machine"
  | "artifacts"
  | "classes"
  | "profile"
  | "flow"
  | "inside"
  | "notes"
  | "log";

/** Every tab: its title, the terminal board's key for it, and whether a run has something to show there. */
export const TABS: Record<Tab, { title: string; key: string; when(detail: RunDetail): boolean }> = {
  charts: { title: "Charts", key: "m", when: () => true },
  config: { title: "Config", key: "c", when: () => true },
  samples: { title: "Samples", key: "a", when: ({ has }) => has.samples },
  checkpoints: { title: "Checkpoints", key: "k", when: ({ has }) => has.checkpoints },
  machine: { title: "Machine", key: "y", when: ({ has }) => has.system },
  artifacts: { title: "Artifacts", key: "i", when: ({ has }) => has.artifacts },
  classes: { title: "Classes", key: "", when: ({ has }) => has.classes },
  profile: { title: "Profile", key: "", when: ({ has }) => has.profile },
  flow: { title: "Model", key: "", when: ({ has }) => has.flow },
  inside: { title: "Inside", key: "I", when: ({ has }) => has.inside },
  notes: { title: "Notes", key: "n", when: () => true },
  log: { title: "Log", key: "g", when: () => true },
};

const WORDS = Object.keys(TABS) as Tab[];

/** The tabs of a run; the one that the address names among them, even where it is empty. */
export function tabsOf(detail: RunDetail, named: Tab): Tab[] {
  return WORDS.filter((tab) => tab === named || TABS[tab].when(detail));
}

export function tabNamed(word: string): Tab {
  return WORDS.find((tab) => tab === word) ?? "charts";
}
