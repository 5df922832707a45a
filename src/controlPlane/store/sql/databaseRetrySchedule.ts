import { backoff } from "../../../shared/work/backoff.ts"

/** The retry schedule of work that must be done once the database is available again. It does not end. */
export const databaseRetrySchedule = backoff({ first: "50 millis", longest: "2 seconds" })
