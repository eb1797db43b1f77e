module github.com/softnd/softnd

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // ndbench: distributions of single operations
	github.com/agnivade/levenshtein v1.2.2 // ndrun: "did you mean"
	github.com/cespare/xxhash/v2 v2.3.0 // the library
	github.com/docker/go-units v0.5.0 // ndrun: sizes such as 512M
	github.com/edsrzf/mmap-go v1.2.0 // the library
	github.com/kballard/go-shellquote v0.0.0-20180428030007-95032a82bc51 // ndrun: words of a command line
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // ndbench: reports to compare with
	github.com/spf13/cobra v1.10.2 // ndbench: command line
	github.com/spf13/pflag v1.0.9 // ndbench: command line
	go.yaml.in/yaml/v3 v3.0.6 // ndrun: fault plans
	golang.org/x/image v0.30.0 // ndbench: fonts of plots
	golang.org/x/sys v0.49.0 // the library
	golang.org/x/text v0.28.0 // ndbench: the language of jsonschema
	gonum.org/v1/plot v0.17.0 // ndbench: plots
)

require (
	codeberg.org/go-fonts/liberation v0.5.0 // indirect
	codeberg.org/go-latex/latex v0.2.0 // indirect
	codeberg.org/go-pdf/fpdf v0.11.1 // indirect
	git.sr.ht/~sbinet/gg v0.7.0 // indirect
	github.com/ajstarks/svgo v0.0.0-20211024235047-1546f124cd8b // indirect
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
)
