import { Layer } from "effect"
import { ScheduleLeader } from "./ScheduleLeader.ts"
import { Schedules } from "./Schedules.ts"

/** Schedules with the work of the leader. */
export const layerSchedules = Layer.merge(Schedules.layer, ScheduleLeader)
