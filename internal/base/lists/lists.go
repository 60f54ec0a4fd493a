// Package lists transforms lists.
package lists

import "slices"

// Map returns the results of f for each element, in order.
func Map[T, U any](list []T, f func(T) U) []U {
	made := make([]U, len(list))
	for i, v := range list {
		made[i] = f(v)
	}
	return made
}

// Add appends the values that a list lacks.
func Add[T comparable](list []T, values ...T) []T {
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
