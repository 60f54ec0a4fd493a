// Package lists transforms lists.
package lists

// Map returns the results of f for each element, in order.
func Map[T, U any](list []T, f func(T) U) []U {
	made := make([]U, len(list))
	for i, v := range list {
		made[i] = f(v)
	}
	return made
}
