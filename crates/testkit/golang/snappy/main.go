// Decodes framed snappy with the library that CDI's upload server uses.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/golang/snappy"
)

func main() {
	if _, err := io.Copy(os.Stdout, snappy.NewReader(os.Stdin)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
