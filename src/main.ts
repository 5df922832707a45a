#!/usr/bin/env node
/** The entry. What an earlier start has compiled is kept beside the packages: a command begins in half the time. */
import { enableCompileCache } from "node:module"
import { join } from "node:path"

enableCompileCache(join(import.meta.dirname, "../node_modules/.cache/muster"))
void import("./cli/run.ts")
