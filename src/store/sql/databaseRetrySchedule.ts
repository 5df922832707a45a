import { Schedule } from "effect"

/** For work that must be done once the database is back: repeated without an end, at first often. */
export const databaseRetrySchedule = Schedule.min([
  Schedule.exponential("50 millis"),
  Schedule.spaced("2 seconds")
])
