package main

import (
	"errors"
	"fmt"
	"strings"
)

// printCompletion prints a completion script for a shell.
func printCompletion(_ *command, shell string) error {
	switch shell {
	case "bash":
		return text(bashCompletion())
	case "zsh":
		return text(zshCompletion())
	case "fish":
		return text(fishCompletion())
	}
	return errors.New("want bash, zsh or fish")
}

// eachOption calls f for each option, in the order of the table.
func eachOption(f func(o *option)) {
	for _, s := range sections {
		for i := range s.options {
			f(&s.options[i])
		}
	}
}

// bothForms returns the names of an option with one dash and with two.
func (o *option) bothForms() []string {
	var forms []string
	for _, name := range o.allNames() {
		forms = append(forms, "-"+name, "--"+name)
	}
	return forms
}

// bashCompletion completes options and their values, and otherwise commands and files.
func bashCompletion() string {
	var one, two []string // by dashes
	var cases strings.Builder
	eachOption(func(o *option) {
		for _, name := range o.allNames() {
			one, two = append(one, "-"+name), append(two, "--"+name)
		}
		var reply string
		switch {
		case o.value == "":
			return
		case o.choices != "":
			reply = fmt.Sprintf(`COMPREPLY=($(compgen -W '%s' -- "$cur"))`, o.choices)
		case o.value == "DIR":
			reply = `COMPREPLY=($(compgen -d -- "$cur"))`
		case o.value == "FILE":
			reply = `COMPREPLY=($(compgen -f -- "$cur"))`
		default:
			reply = "COMPREPLY=()"
		}
		fmt.Fprintf(&cases, "\t%s) %s; return ;;\n", strings.Join(o.bothForms(), " | "), reply)
	})
	return `# bash completion for ndrun, written by: ndrun --completion bash
_ndrun() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()
	case $prev in
` + cases.String() + `	esac
	case $cur in
	--*) COMPREPLY=($(compgen -W '` + strings.Join(two, " ") + `' -- "$cur")) ;;
	-*) COMPREPLY=($(compgen -W '` + strings.Join(one, " ") + `' -- "$cur")) ;;
	*) COMPREPLY=($(compgen -c -f -- "$cur")) ;;
	esac
}
complete -o filenames -F _ndrun ndrun
`
}

// zshCompletion works as file _ndrun in a directory of fpath, and with eval.
func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef ndrun\n# zsh completion for ndrun, written by: ndrun --completion zsh\n_ndrun() {\n\t_arguments -S \\\n")
	quote := strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`)
	eachOption(func(o *option) {
		for _, form := range o.bothForms() {
			fmt.Fprintf(&b, "\t\t'*%s[%s]", form, quote.Replace(o.help))
			for i, word := range strings.Fields(o.value) {
				action := " "
				switch {
				case i > 0:
				case o.choices != "":
					action = "(" + strings.ReplaceAll(o.choices, ":", `\:`) + ")"
				case o.value == "DIR":
					action = "_files -/"
				case o.value == "FILE":
					action = "_files"
				}
				fmt.Fprintf(&b, ":%s:%s", quote.Replace(word), action)
			}
			b.WriteString("' \\\n")
		}
	})
	b.WriteString("\t\t'*::program:_normal'\n}\nif [ \"$funcstack[1]\" = _ndrun ]; then _ndrun \"$@\"; else compdef _ndrun ndrun; fi\n")
	return b.String()
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# fish completion for ndrun, written by: ndrun --completion fish\n")
	eachOption(func(o *option) {
		fmt.Fprint(&b, "complete -c ndrun")
		for _, name := range o.allNames() {
			if len(name) == 1 {
				fmt.Fprintf(&b, " -s %s -l %[1]s", name)
			} else {
				fmt.Fprintf(&b, " -o %s -l %[1]s", name)
			}
		}
		switch {
		case o.value == "":
		case o.choices != "":
			fmt.Fprintf(&b, " -x -a '%s'", o.choices)
		case o.value == "DIR":
			b.WriteString(" -x -a '(__fish_complete_directories)'")
		case o.value == "FILE":
			b.WriteString(" -r")
		default:
			b.WriteString(" -x")
		}
		fmt.Fprintf(&b, " -d '%s'\n", strings.ReplaceAll(o.help, "'", `\'`))
	})
	return b.String()
}
