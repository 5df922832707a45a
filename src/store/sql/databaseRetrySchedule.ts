import { Schedule } from "effect"

/** The retry schedule of work that must be done once the database is back: without end, at first often. */
export const databaseRetrySchedule = Schedule.min([
  Schedule.exponential("50 millis"),
  Schedule.spaced("2 seconds")
])
