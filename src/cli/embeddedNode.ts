import { Layer } from "effect"
import type { ServiceSettings } from "../config.ts"
export const EmbeddedNode = (_settings: ServiceSettings, _dataDir: string) => Layer.empty
