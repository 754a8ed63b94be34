/** Pages that are fetched when somebody first goes to one of them, in one piece. */
import { later } from "../ui/later";

const pages = () => import("./pages");
export const RunPage = later(async () => (await pages()).RunPage);
export const ComparePage = later(async () => (await pages()).ComparePage);
export const SamplesPage = later(async () => (await pages()).SamplesPage);
export const CheckpointsPage = later(async () => (await pages()).CheckpointsPage);
export const MachinePage = later(async () => (await pages()).MachinePage);
