/** Sets the chosen theme before the first paint; without a choice the system decides. A script, not a module. */
{
  const chosen = localStorage.getItem("muster.theme")
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen
}
