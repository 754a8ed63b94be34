import type { ComponentChildren } from "preact";
import "./page.css";

/** The heading of a page or of a part of it: what it is, and a few words beside. */
export function PageTitle({
  title,
  note,
  children,
}: {
  title: string;
  note?: ComponentChildren;
  children?: ComponentChildren;
}) {
  return (
    <div class="page-title">
      <h2>{title}</h2>
      {note !== undefined && <span class="faint">{note}</span>}
      <span class="grow" />
      {children}
    </div>
  );
}
