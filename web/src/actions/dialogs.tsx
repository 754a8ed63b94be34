/** The questions before runs are changed. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { known, nameOf, source, table } from "../data/state";
import { Button } from "../ui/button";
import { Dialog } from "../ui/dialog";
import { RunLabel } from "../ui/run-label";
import { plural, size } from "../words";
import { addNote, changeTags, question, remove, rename, runsInWords } from "./actions";
import "./dialogs.css";

const MOST_NAMED = 8;

function close(): void {
  question.value = null;
}

export function ActionDialogs() {
  const asked = question.value;
  if (!asked) return null;
  const [first = ""] = asked.ids;
  switch (asked.kind) {
    case "delete":
      return <DeleteDialog ids={asked.ids} />;
    case "tags":
      return <TagsDialog ids={asked.ids} />;
    case "name":
      return <NameDialog id={first} />;
    case "note":
      return <NoteDialog ids={asked.ids} />;
  }
}

function RunNames({ ids }: { ids: readonly string[] }) {
  return (
    <ul class="run-names">
      {ids.slice(0, MOST_NAMED).map((id) => (
        <li key={id}>
          <RunLabel id={id} />
        </li>
      ))}
      {ids.length > MOST_NAMED && <li class="faint">and {plural(ids.length - MOST_NAMED, "other")}</li>}
    </ul>
  );
}

function DeleteDialog({ ids }: { ids: readonly string[] }) {
  const [bytes, setBytes] = useState<number | null>(null);
  useEffect(() => {
    const asking = new AbortController();
    void source()
      .sizes(ids, asking.signal)
      .then(
        (sizes) => setBytes(Object.values(sizes).reduce((sum, part) => sum + part, 0)),
        () => {},
      );
    return () => asking.abort();
  }, [ids]);
  const live = ids.filter((id) => known.value.get(id)?.status === "live");
  return (
    <Dialog
      title={`Delete ${runsInWords(ids)}?`}
      onClose={close}
      actions={
        <>
          <Button onClick={close}>Keep</Button>
          <Button
            kind="danger"
            onClick={() => {
              close();
              void remove(ids);
            }}
          >
            Delete{bytes === null ? "" : ` ${size(bytes)}`}
          </Button>
        </>
      }
    >
      <RunNames ids={ids} />
      <p>
        {bytes === null ? "Counting what they hold …" : `${size(bytes)} with checkpoints and artifacts.`} For a day they
        can be taken back: Undo, or <code>linnet delete --undo</code>.
      </p>
      {live.length > 0 && <p class="warn">Still training: {plural(live.length, "run")} of these.</p>}
    </Dialog>
  );
}

function TagsDialog({ ids }: { ids: readonly string[] }) {
  const tagsOf = (id: string) => known.value.get(id)?.tags ?? [];
  const counts = new Map<string, number>();
  for (const tag of ids.flatMap(tagsOf)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  const elsewhere = [...new Set((table.value?.rows ?? []).flatMap((row) => row.tags))].filter(
    (tag) => !counts.has(tag),
  );
  const [added, setAdded] = useState<string[]>([]);
  const [removed, setRemoved] = useState<string[]>([]);
  const [typed, setTyped] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);

  const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);
  const include = (tags: readonly string[]) => {
    setRemoved(removed.filter((tag) => !tags.includes(tag)));
    setAdded([...new Set([...added, ...tags.filter((tag) => counts.get(tag) !== ids.length)])]);
  };
  const exclude = (tag: string) => {
    setAdded(added.filter((other) => other !== tag));
    if (counts.has(tag)) setRemoved([...removed, tag]);
  };
  const save = () => {
    const all = [...new Set([...added, ...words(typed)])];
    close();
    if (all.length || removed.length) void changeTags(ids, all, removed);
  };
  const shown = [...new Set([...counts.keys(), ...added])].filter((tag) => !removed.includes(tag)).sort();
  return (
    <Dialog
      title={`Tags of ${runsInWords(ids)}`}
      onClose={close}
      actions={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button kind="main" onClick={save} disabled={!added.length && !removed.length && !typed.trim()}>
            Save
          </Button>
        </>
      }
    >
      <ul class="tag-list" aria-label="Tags">
        {shown.map((tag) => (
          <li key={tag} class="tag-chip">
            {tag}
            {(counts.get(tag) ?? ids.length) < ids.length && !added.includes(tag) && (
              <button type="button" title="Give it to all of them" onClick={() => include([tag])}>
                {counts.get(tag)} of {ids.length}
              </button>
            )}
            <button type="button" aria-label={`Take ${tag} away`} onClick={() => exclude(tag)}>
              ×
            </button>
          </li>
        ))}
        {!shown.length && <li class="faint">No tags yet.</li>}
      </ul>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (typed.trim()) {
            include(words(typed));
            setTyped("");
          } else save();
        }}
      >
        <input
          ref={field}
          class="field"
          aria-label="New tags"
          placeholder="baseline  wide  keep"
          list="known-tags"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
        <datalist id="known-tags">
          {elsewhere.map((tag) => (
            <option key={tag} value={tag} />
          ))}
        </datalist>
      </form>
      {elsewhere.length > 0 && (
        <ul class="tag-list known" aria-label="Tags of other runs">
          {elsewhere.slice(0, 24).map((tag) => (
            <li key={tag}>
              <button type="button" class="tag-chip" onClick={() => include([tag])}>
                + {tag}
              </button>
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}

function NameDialog({ id }: { id: string }) {
  const [typed, setTyped] = useState(nameOf(id) === id ? "" : nameOf(id));
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.select(), []);
  const save = () => {
    close();
    void rename(id, typed.trim());
  };
  return (
    <Dialog
      title="Name"
      onClose={close}
      actions={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button kind="main" onClick={save}>
            Save
          </Button>
        </>
      }
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <input
          ref={field}
          class="field"
          aria-label="Name"
          placeholder={id}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </form>
      <p class="faint">Its folder and id stay as they are: {id}</p>
    </Dialog>
  );
}

function NoteDialog({ ids }: { ids: readonly string[] }) {
  const [typed, setTyped] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const save = () => {
    close();
    if (typed.trim()) void addNote(ids, typed.trim());
  };
  return (
    <Dialog
      title={`Note about ${runsInWords(ids)}`}
      onClose={close}
      actions={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button kind="main" onClick={save} disabled={!typed.trim()}>
            Save
          </Button>
        </>
      }
    >
      <textarea
        ref={field}
        class="field"
        rows={4}
        aria-label="Note"
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
        }}
      />
    </Dialog>
  );
}
