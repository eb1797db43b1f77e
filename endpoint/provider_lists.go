package endpoint

import "slices"

// with and without return changed copies of a list that readers hold without
// a lock.
func with[T comparable](list *[]T, x T) *[]T {
	l := append(slices.Clone(*list), x)
	return &l
}

func without[T comparable](list *[]T, x T) *[]T {
	l := slices.DeleteFunc(slices.Clone(*list), func(y T) bool { return y == x })
	return &l
}
