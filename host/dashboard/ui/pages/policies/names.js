// Names of policies that can be chosen.

/** Returns the names of a page /admin/policies. A shadow is a second copy of a policy, which cannot be chosen itself. */
export function policyNames(page) {
  return (page?.policies ?? []).map(({ name }) => name).filter((name) => !name.endsWith(' (shadow)'));
}
