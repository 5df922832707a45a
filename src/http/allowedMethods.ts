import { FindMyWay } from "effect/http"
import { HttpApi, type HttpApiGroup } from "effect/http-api"

/** How paths are matched; a longer path parameter is no route. */
export const routerConfig = { caseSensitive: true, maxParamLength: 512 } as const

const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const

/** Which methods a path of the contract answers, for 405 and `Allow`. `HEAD` goes wherever `GET` does. */
export const allowedMethods = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  others: ReadonlyArray<string> = []
) => {
  const router = FindMyWay.make<true>(routerConfig)
  const add = (method: (typeof methods)[number], path: string) => {
    // Paths of an HttpApi begin with a slash; the router's types want that in the type.
    router.on(method, path as `/${string}`, true)
  }
  HttpApi.reflect(api, {
    onGroup: () => {},
    onEndpoint: ({ endpoint }) => {
      const method = methods.find((candidate) => candidate === endpoint.method)
      if (method !== undefined) add(method, endpoint.path)
    }
  })
  for (const path of others) add("GET", path)
  return (url: string): ReadonlyArray<string> =>
    methods.filter(
      (method) =>
        router.find(method, url) !== undefined || (method === "HEAD" && router.find("GET", url) !== undefined)
    )
}
