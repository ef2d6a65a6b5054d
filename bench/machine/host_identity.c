/* host_identity.c - identifies the host from /etc and /sys, and splits the text of the column `host`. */
#include "bench/machine/host_identity.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/machine/host_state.h"
#include "bench/text/text.h"

enum { PATH = 512, LINE = 128 };

static const char name_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
static const char hex_digits[] = "0123456789abcdef";

/* ---- the text of the column --------------------------------------------------------------------------- */

/* True if the first n bytes of text are a valid machine name (NAME in host_identity.h). */
static bool name_ok(const char *text, size_t n)
{
    return n && n <= PB_MACHINE_NAME && *text != '.' && strspn(text, name_letters) >= n;
}

static bool hash_ok(const char *text)
{
    const size_t n = strspn(text, hex_digits);
    return !text[n] && (n == PB_HOST_HASH || !n);
}

pb_host pb_host_parse(const char *text)
{
    pb_host h = {0};
    if (!text || !*text) return h;
    const size_t n = strcspn(text, "/?");
    const char *hash = text + n + 1;
    const bool named = text[n] == '/' && name_ok(text, n);
    if (!text[n] || (n && !named) || !hash_ok(hash)) return h;
    memcpy(h.name, text, n); /* the rest of h is 0 */
    memcpy(h.hash, hash, strlen(hash));
    h.verified = named || (text[n] == '/' && *h.hash);
    return h;
}

bool pb_host_same(const char *a, const char *b)
{
    const pb_host x = pb_host_parse(a), y = pb_host_parse(b);
    if (!x.verified || !y.verified) return false;
    if (*x.name && *y.name) return strcmp(x.name, y.name) == 0;
    return *x.hash && strcmp(x.hash, y.hash) == 0;
}

static pb_status check_name(const char *source, const char *name)
{
    if (name_ok(name, strlen(name))) return PB_OK;
    return pb_fail(PB_EINVAL,
                   "%s %.60s: the name of a machine has 1 to %d letters, digits, '.', '_' or '-', and does not begin "
                   "with '.'",
                   source, name, PB_MACHINE_NAME);
}

pb_status pb_host_name(const char *option, const char **name)
{
    const char *set = getenv("PB_MACHINE");
    *name = option ? option : set && *set ? set : NULL;
    return *name ? check_name(option ? "--machine" : "PB_MACHINE", *name) : PB_OK;
}

pb_status pb_host_name_rows(pb_table *t, const char *name)
{
    char text[PB_HOST_TEXT];
    PB_TRY(check_name("--machine", name));
    for (size_t i = 0; i < t->n; i++) {
        const pb_host h = pb_host_parse(t->rows[i].host);
        if (*h.name && strcmp(h.name, name) != 0)
            return pb_fail(PB_EINVAL, "--machine %s: %s was measured on the machine %s", name, t->path, h.name);
        if (h.verified) continue;
        snprintf(text, sizeof text, "%s/%s", name, h.hash);
        t->rows[i].host = pb_intern(t->strings, text, strlen(text));
        if (!t->rows[i].host) return pb_fail(PB_ENOMEM, "%s: out of memory", t->path);
    }
    return PB_OK;
}

/* ---- this host ------------------------------------------------------------------------------------------ */

/* Copies the first line of a file; "" if it cannot be read. */
static void line_of(const char *root, const char *path, char out[LINE])
{
    char full[PATH];
    FILE *f = snprintf(full, sizeof full, "%s%s", root, path) < PATH ? fopen(full, "r") : NULL;
    if (!f || !fgets(out, LINE, f)) *out = 0;
    if (f) fclose(f);
    out[strcspn(out, "\n")] = 0;
}

/* Reads /etc/machine-id; "" unless it is 32 hexadecimal digits: while a system is installed, it is "uninitialized". */
static void machine_id_of(const char *root, char out[LINE])
{
    line_of(root, "/etc/machine-id", out);
    if (strspn(out, hex_digits) != 32 || out[32]) *out = 0;
}

/* Reads the UUID of the mainboard, else its serial number. */
static void mainboard_of(const char *root, char out[LINE])
{
    line_of(root, "/sys/class/dmi/id/product_uuid", out);
    if (!*out) line_of(root, "/sys/class/dmi/id/board_serial", out);
}

/* Reads the permanent MAC address of a network card; "" if the interface is not a card or has none. Virtual interfaces
 * have no folder `device`; an address that is not of type 0 was drawn at random or set by software. */
static void address_of(const char *root, const char *interface, char out[LINE])
{
    char path[PATH], type[LINE];
    *out = 0;
    if (snprintf(path, sizeof path, "%s/sys/class/net/%s/device", root, interface) >= PATH) return;
    if (access(path, F_OK) != 0) return;
    snprintf(path, sizeof path, "/sys/class/net/%s/addr_assign_type", interface);
    line_of(root, path, type);
    snprintf(path, sizeof path, "/sys/class/net/%s/address", interface);
    if (strcmp(type, "0") == 0) line_of(root, path, out);
    if (!out[strspn(out, "0:")]) *out = 0;
}

/* Reads the MAC address of the first network card, by name of the interface. */
static void first_address(const char *root, char out[LINE])
{
    char folder[PATH];
    struct dirent **found;
    *out = 0;
    if (snprintf(folder, sizeof folder, "%s/sys/class/net", root) >= PATH) return;
    const int n = scandir(folder, &found, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (!*out && found[i]->d_name[0] != '.') address_of(root, found[i]->d_name, out);
        free(found[i]);
    }
    if (n >= 0) free(found);
}

void pb_host_text(const char *root, const char *name, const char *gpu, char out[PB_HOST_TEXT])
{
    char id[LINE], address[LINE], board[LINE], all[3 * LINE + 8], hash[PB_HOST_HASH + 1] = "";
    machine_id_of(root, id);
    first_address(root, address);
    mainboard_of(root, board);
    const bool both = *id && *address;
    const double virtual = pb_host_read(root).virtual; /* NaN: the kernel reports no processor flags */
    const bool identified = (both || *board) && virtual <= 0;
    snprintf(all, sizeof all, "%s %s %s", id, address, both ? "" : board);
    if (*id || *address || *board) snprintf(hash, sizeof hash, "%08x", pb_text_hash(all));
    if (gpu) {
        snprintf(all, sizeof all, "%s %.100s", hash, gpu);
        snprintf(hash, sizeof hash, "%08x", pb_text_hash(all));
    }
    if (name) snprintf(out, PB_HOST_TEXT, "%s/%s", name, hash);
    else snprintf(out, PB_HOST_TEXT, "%s%s", identified ? "/" : "?", hash);
}
