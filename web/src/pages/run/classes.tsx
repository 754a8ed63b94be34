import { useMemo } from "preact/hooks";
import { pageParam, text } from "../../address";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import type { Evaluation } from "../../data/types";
import { Empty } from "../../ui/empty";
import { Segmented } from "../../ui/segmented";
import { number } from "../../words";
import { PageSteps, shownStep } from "../step-param";
import { classFigures } from "./confusion";
import { ClassTable, ConfusionView, classesOf } from "./confusion-view";

const nameParam = pageParam("eval", text, "");

/** What a classifier takes for what, by evaluation: the confusion matrix and the figures of each class. */
export function ClassesTab({ id }: { id: string }) {
  const { value, problem } = useLoaded(id, "evaluations", (run, signal) => source().evaluations(run, signal), [
    "metrics",
    "status",
    "artifacts",
  ]);
  const byClass = useMemo(
    () => (value ?? []).filter(({ per_class, confusion }) => per_class !== null || confusion !== null),
    [value],
  );
  const names = [...new Set(byClass.map(({ name }) => name))];
  const name = names.includes(nameParam.value) ? nameParam.value : (names[0] ?? "");
  const ofName = useMemo(() => byClass.filter((evaluation) => evaluation.name === name), [byClass, name]);
  const classes = useMemo(() => ofName.map(classesIn), [ofName]);
  const steps = ofName.map(({ step }) => step);
  const index = shownStep(steps);
  const evaluation = ofName[index];
  if (!evaluation) {
    if (!value && !problem) return <p class="loading">reading evaluations …</p>;
    return <Empty title={problem ?? "No evaluation tells of classes"} />;
  }
  return (
    <>
      <div class="toolbar">
        <PageSteps label="evaluations" steps={steps} />
        {names.length > 1 && (
          <Segmented
            label="Evaluation"
            options={names}
            value={name}
            onChange={(next) => {
              nameParam.value = next;
            }}
          />
        )}
        <span class="dim">
          {Object.entries(evaluation.figures)
            .map(([key, figure]) => `${key} ${number(figure)}`)
            .join(" · ")}
        </span>
      </div>
      <div class={evaluation.confusion ? "classes" : ""}>
        {evaluation.confusion && <ConfusionView confusion={evaluation.confusion} />}
        <div>
          <ClassTable classes={classes[index] ?? []} />
        </div>
      </div>
    </>
  );
}

function classesIn({ confusion, per_class }: Evaluation) {
  return confusion ? classFigures(confusion) : classesOf(per_class ?? {});
}
