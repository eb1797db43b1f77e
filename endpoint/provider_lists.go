package endpoint

import "slices"

// with and without return changed versions of a list that readers hold without a lock. Their callers pass the latest version.
// with fills the array behind the end of the versions that readers hold. So n calls do not copy n lists.
// without never shares its array.
func with[T comparable](list *[]T, x T) *[]T {
	l := append(*list, x)
	return &l
}

func without[T comparable](list *[]T, x T) *[]T {
	l := slices.DeleteFunc(slices.Clone(*list), func(y T) bool { return y == x })
	return &l
}
