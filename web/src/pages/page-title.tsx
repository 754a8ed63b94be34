import type { ComponentChildren } from "preact";
import "./page.css";

/** The heading of a page (`page`) or of a part of it: what it is, and a few words beside. */
export function PageTitle({
  title,
  page = false,
  note,
  children,
}: {
  title: string;
  page?: boolean;
  note?: ComponentChildren;
  children?: ComponentChildren;
}) {
  return (
    <div class="page-title">
      {page ? <h1>{title}</h1> : <h2>{title}</h2>}
      {note !== undefined && <span class="faint">{note}</span>}
      <span class="grow" />
      {children}
    </div>
  );
}
