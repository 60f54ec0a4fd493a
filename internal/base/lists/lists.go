// Package lists makes lists of lists.
package lists

// Map returns what f makes of each element, in the order of the list.
func Map[T, U any](list []T, f func(T) U) []U {
	made := make([]U, len(list))
	for i, v := range list {
		made[i] = f(v)
	}
	return made
}
