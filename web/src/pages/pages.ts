/** What `later.ts` fetches. */
export { CheckpointsPage } from "./checkpoints/page";
export { ComparePage } from "./compare/page";
export { MachinePage } from "./machine/page";
export { RunPage } from "./run/page";
export { SamplesPage } from "./samples/page";
