/**
 * In a service that starts with `node --import turnProbe.ts`: prints the CPU time of each long turn of the event loop. A
 * busy machine does not lengthen it.
 */

/** Milliseconds. */
const LONG = 10

const measure = (last: NodeJS.CpuUsage) => {
  const { system, user } = process.threadCpuUsage(last)
  const millis = (system + user) / 1000
  if (millis > LONG) process.stderr.write(`turn of ${millis.toFixed(1)} ms\n`)
  setTimeout(measure, 1, process.threadCpuUsage()).unref()
}

if (process.argv.includes("serve")) measure(process.threadCpuUsage())

/** Returns the longest turn of an output, in milliseconds; {@link LONG}: there is none. */
export const longestTurn = (output: string): number =>
  Math.max(LONG, ...Array.from(output.matchAll(/^turn of ([\d.]+) ms$/gm), ([, millis]) => Number(millis)))
