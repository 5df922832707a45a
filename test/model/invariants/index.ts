/** All invariants of a run. */
import type { Invariant } from "../History.ts"
import { answers, found, gone } from "./answers.ts"
import { failures, leftovers, once, stored } from "./backups.ts"
import { expiry, lastPatch, overridden, rollouts } from "./changes.ts"
import { acknowledged, deletions, idempotency, unchanged, whole } from "./creations.ts"
import { drains } from "./drains.ts"
import { order, state, transitions } from "./journal.ts"
import { keptUntil, keptWhole, returns } from "./kept.ts"
import { lastPowerAction, started } from "./lastPowerAction.ts"
import { limits } from "./limits.ts"
import { agreement, reports } from "./nodes.ts"
import { capacity, ports } from "./reservations.ts"
import { runs } from "./schedules.ts"
import { streams } from "./streams.ts"

export const invariants: ReadonlyArray<Invariant> = [
  answers,
  found,
  gone,
  idempotency,
  whole,
  unchanged,
  acknowledged,
  deletions,
  order,
  state,
  transitions,
  ports,
  capacity,
  streams,
  agreement,
  reports,
  drains,
  lastPowerAction,
  started,
  lastPatch,
  expiry,
  overridden,
  rollouts,
  limits,
  stored,
  leftovers,
  once,
  failures,
  keptWhole,
  keptUntil,
  returns,
  runs
]
