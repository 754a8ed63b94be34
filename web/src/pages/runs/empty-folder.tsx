import { board } from "../../data/state";
import { CommandLine, Empty } from "../../ui/empty";

const LOOP = `import linnet

with linnet.start(config={"lr": 0.1}, total_steps=1000) as run:
    for step in range(1, 1001):
        run.log(step, loss=train_one_step())`;

/** A folder without runs: what to type, so that there is one. It appears here by itself. */
export function EmptyFolder() {
  const root = board.value?.root ?? "this folder";
  return (
    <Empty title={`No runs in ${root} yet`}>
      <p>A model of two million parameters, trained here in three minutes:</p>
      <CommandLine text={`linnet demo --runs ${root}`} />
      <p>Your own text:</p>
      <CommandLine text={`linnet train from-scratch --corpus FOLDER --runs ${root}`} />
      <p>Your own loop:</p>
      <pre class="loop">{LOOP}</pre>
      <p class="faint">Runs appear on this page by themselves, and go on while they train.</p>
    </Empty>
  );
}
