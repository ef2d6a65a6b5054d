/* print.c - prints the help of a command and the bash completion script from a program's tables. */
#include <string.h>

#include "cli/options.h"

void pb_cli_print_entry(const char *left, int column, const char *text, FILE *out)
{
    int at = fprintf(out, "%s", left);
    if (at && at >= column) fputc('\n', out), at = 0;
    for (const char *word = text; *word;) {
        const int n = (int)strcspn(word, " ");
        if (at > column && at + 1 + n > PB_HELP_WIDTH) fputc('\n', out), at = 0;
        at += fprintf(out, "%*s%.*s", at > column ? 1 : column - at, "", n, word);
        word += n;
        word += strspn(word, " ");
    }
    fputc('\n', out);
}

void pb_cli_print_options(const pb_cli *cli, int command, FILE *out)
{
    char name[PB_OPTION_TEXT], left[160], text[1200];
    for (const pb_option_info *i = cli->options; i->name; i++) {
        if (!i->help || !(i->commands & 1u << command)) continue;
        pb_option_text(i, name, sizeof name);
        snprintf(left, sizeof left, "  %c%c%s %s %s", i->letter ? '-' : ' ', i->letter ? i->letter : ' ',
                 i->letter ? "," : " ", name, i->argument ? i->argument : "");
        snprintf(text, sizeof text, "%s%s%s%s", i->help, i->deflt ? " [" : "", i->deflt ? i->deflt : "",
                 i->deflt ? "]" : "");
        pb_cli_print_entry(left, PB_HELP_COLUMN, text, out);
    }
}

void pb_cli_print_version(const char *program, const char *commit, FILE *out)
{
    fprintf(out, "%s %s, commit %s\n", program, PB_VERSION, commit);
}

/* Prints one branch of the completion script's `case` statement for each option that takes a value, such as
 *     --device|-d) words="cpu cuda" ;; */
static void print_values(const pb_cli *cli, FILE *out)
{
    char text[PB_OPTION_TEXT];
    for (const pb_option_info *i = cli->options; i->name; i++) {
        if (!i->help || !i->argument) continue;
        pb_option_text(i, text, sizeof text);
        fprintf(out, "    %s", text);
        if (i->letter) fprintf(out, "|-%c", i->letter);
        if (strcmp(i->type, "choice") == 0) {
            fprintf(out, ") words=\"");
            for (const char *c = i->argument; *c; c++) {
                if (strncmp(c, PB_NUMBERED, strlen(PB_NUMBERED)) == 0) c += strlen(PB_NUMBERED) - 1;
                else fputc(*c == '|' ? ' ' : *c, out);
            }
            fprintf(out, "\" ;;\n");
        } else if (cli->extra && cli->extra->value(i->name, 0)) {
            fprintf(out, ") words=\"");
            for (int v = 0; cli->extra->value(i->name, v); v++) fprintf(out, "%s ", cli->extra->value(i->name, v));
            fprintf(out, "\" ;;\n");
        } else {
            const bool folder = strstr(i->argument, "DIR"), file = strstr(i->argument, "FILE");
            fprintf(out, ") %s\n", folder || file ? "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;" : "return ;;");
        }
    }
}

static void print_words(const pb_cli *cli, int command, FILE *out)
{
    char text[PB_OPTION_TEXT];
    const char *name;
    fprintf(out, "    %s) words=\"", pb_command_text(&cli->commands[command], text));
    for (const pb_option_info *i = cli->options; i->name; i++) {
        pb_option_text(i, text, sizeof text);
        if (i->help && i->commands & 1u << command) fprintf(out, "%s ", text);
    }
    for (int i = 0; cli->extra && (name = cli->extra->each(command, i)); i++) fprintf(out, "--%s ", name);
    fprintf(out, "\" ;;\n");
}

void pb_cli_print_bash(const pb_cli *cli, FILE *out)
{
    const char *p = cli->program;
    char text[PB_OPTION_TEXT];
    fprintf(out,
            "# bash completion of %s, printed by: %s completion bash\n"
            "_%s() {\n"
            "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=%s words=\n"
            "    [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]] && command=${COMP_WORDS[1]}\n"
            "    case $prev in\n",
            p, p, p, cli->commands[0].name);
    print_values(cli, out);
    fprintf(out, "    esac\n    if [[ -z $words ]]; then case $command in\n");
    for (int c = 0; cli->commands[c].name; c++) print_words(cli, c, out);
    fprintf(out, "    esac; fi\n    [[ $COMP_CWORD -eq 1 ]] && words+=\" ");
    for (int c = 0; cli->commands[c].name; c++) fprintf(out, "%s ", pb_command_text(&cli->commands[c], text));
    fprintf(out, "\"\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -F _%s %s\n", p, p);
}
