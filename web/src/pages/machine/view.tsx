/** The machine's figures. */
export function MachineView({ runs }: { runs: readonly string[] }) {
  return <p class="faint">{runs.length} runs</p>;
}
