// Preloaded into a service: at SIGUSR2 it collects garbage and prints the memory in use, in bytes. Compiled code does
// not count: the engine optimizes functions for many minutes after a start.
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

const CODE = /^(code|trusted)_/
setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc")
let count = 0
process.on("SIGUSR2", () => {
  collect()
  collect()
  // Buffers are part of what is external.
  const { external, rss } = process.memoryUsage()
  const objects = getHeapSpaceStatistics()
    .filter(({ space_name }) => !CODE.test(space_name))
    .reduce((sum, { space_used_size }) => sum + space_used_size, external)
  console.error(`memory ${++count} ${objects} ${rss}`)
})
