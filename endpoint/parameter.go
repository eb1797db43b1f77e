package endpoint

import "github.com/softnd/softnd/nd"

// argument returns err, which refuses an argument, with the name of the parameter or configuration field.
func argument(name string, err error) error {
	err.(*nd.OpError).Field = name
	return err
}
