// Names of the policies that a user can choose.

/** Returns the names from a page /admin/policies, without shadows, which are second instances of a policy. */
export function policyNames(page) {
  return (page?.policies ?? []).map(({ name }) => name).filter((name) => !name.endsWith(' (shadow)'));
}
