/* completion.c - `bench completion bash`: a script made from the tables of commands, options and suites. */
#include <stdio.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/tables.h"

static void words_of_choice(const char *choices)
{
    for (const char *c = choices; *c; c++) putchar(*c == '|' ? ' ' : *c);
}

/* case "$prev" in --device|-d) words="cpu cuda" ;; ... */
static void print_values(void)
{
    char text[64];
    for (const pb_option_info *i = pb_option_table; i->name; i++) {
        if (!i->help || !i->argument) continue;
        pb_option_text(i, text, sizeof text);
        printf("    %s%s%c) ", text, i->letter ? "|-" : "", i->letter ? i->letter : ' ');
        if (strcmp(i->type, "choice") == 0) {
            printf("words=\"");
            words_of_choice(i->argument);
            printf("\" ;;\n");
        } else if (strcmp(i->name, "suite") == 0) {
            printf("words=\"");
            for (const pb_suite *const *s = pb_suites; *s; s++) printf("%s ", (*s)->name);
            printf("\" ;;\n");
        } else
            printf("%s\n",
                   strstr(i->argument, "DIR") ? "COMPREPLY=($(compgen -d -- \"$cur\")); return ;;" : "return ;;");
    }
}

static void print_options(pb_command c)
{
    char text[64], item[512];
    printf("    %s) words=\"", pb_commands[c].name);
    for (const pb_option_info *i = pb_option_table; i->name; i++) {
        pb_option_text(i, text, sizeof text);
        if (i->help && i->commands & (1u << c)) printf("%s ", text);
    }
    for (const pb_suite *const *s = pb_suites; c == PB_COMMAND_run && *s; s++)
        for (const char *rest = (*s)->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));)
            printf("--%.*s ", (int)strcspn(item, "="), item);
    printf("\" ;;\n");
}

static void print_bash(void)
{
    printf("# bash completion of bench, printed by: bench completion bash\n"
           "_bench() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=run words=\n"
           "    [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]] && command=${COMP_WORDS[1]}\n"
           "    case $prev in\n");
    print_values();
    printf("    esac\n    if [[ -z $words ]]; then case $command in\n");
    for (int c = 0; c < PB_NCOMMANDS; c++) print_options((pb_command)c);
    printf("    esac; fi\n    [[ $COMP_CWORD -eq 1 ]] && words+=\" ");
    for (int c = 0; c < PB_NCOMMANDS; c++) printf("%s ", pb_commands[c].name);
    printf("\"\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -F _bench bench\n");
}

pb_exit pb_cmd_completion(const pb_options *o)
{
    if (o->nargs != 1 || strcmp(o->args[0], "bash") != 0) {
        pb_fail(PB_EINVAL, "completion: for which shell? There is one: bench completion bash");
        return pb_complain(PB_EXIT_USAGE);
    }
    print_bash();
    return PB_EXIT_OK;
}
