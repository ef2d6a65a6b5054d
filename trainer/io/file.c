/* file.c - mapping files, JSON with messages of one line, and replacing a file as a whole. */
#include "trainer/io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/io/disk.h"

static pb_status map(int fd, const char *path, pb_map *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return pb_fail(PB_EIO, "%s: not a regular file", path);
    *out = (pb_map){.n = (size_t)st.st_size};
    if (!out->n) return PB_OK; /* nothing can be mapped */
    void *p = mmap(NULL, out->n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return pb_fail(PB_EIO, "%s: cannot be mapped: %s", path, strerror(errno));
    out->p = p;
    out->fd = fd;
    return PB_OK;
}

pb_status pb_map_open(const char *path, pb_map *out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    pb_map m = {0};
    const pb_status s = map(fd, path, &m);
    if (!m.p) close(fd);
    if (s == PB_OK) *out = m;
    return s;
}

void pb_map_close(pb_map *m)
{
    if (m->p) munmap(m->p, m->n), close(m->fd);
    *m = (pb_map){0};
}

pb_status pb_json_parse(const char *where, const void *text, size_t n, json_t **out)
{
    json_error_t e;
    json_t *root = n ? json_loadb(text, n, JSON_REJECT_DUPLICATES, &e) : NULL;
    if (!n) return pb_fail(PB_EINVAL, "%s: empty, not JSON", where);
    if (!root) {
        for (char *c = e.text; *c; c++) /* it quotes the text, line breaks and all */
            if ((unsigned char)*c < 32 || *c == 127) *c = '?';
        return pb_fail(PB_EINVAL, "%s: not JSON: line %d: %s", where, e.line, e.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return pb_fail(PB_EINVAL, "%s: not a JSON object", where);
    }
    *out = root;
    return PB_OK;
}

pb_status pb_json_open(const char *path, json_t **out)
{
    pb_map m = {0};
    PB_TRY(pb_map_open(path, &m));
    const pb_status s = pb_json_parse(path, m.p, m.n, out);
    pb_map_close(&m);
    return s;
}

bool pb_is_printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127) return false;
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------------ */

pb_status pb_path_join(const char *dir, const char *name, char **out)
{
    const size_t room = strlen(dir) + strlen(name) + 2;
    char *path = malloc(room);
    if (!path) return pb_fail(PB_ENOMEM, "%s: no memory", dir);
    snprintf(path, room, "%s/%s", dir, name);
    *out = path;
    return PB_OK;
}

pb_status pb_make_folder(const char *dir)
{
    struct stat st;
    if (mkdir(dir, 0777) == 0) return pb_disk_sync_parent(&pb_disk_posix, dir);
    if (errno != EEXIST) return pb_fail(PB_EIO, "%s: %s", dir, strerror(errno));
    return stat(dir, &st) == 0 && S_ISDIR(st.st_mode) ? PB_OK : pb_fail(PB_EIO, "%s: not a folder", dir);
}

pb_status pb_json_save(const char *path, const json_t *root)
{
    const pb_disk *d = &pb_disk_posix;
    const size_t room = strlen(path) + sizeof ".partial";
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS), *partial = malloc(room);
    pb_status s = text && partial ? PB_OK : pb_fail(PB_ENOMEM, "%s: no memory", path);
    if (s == PB_OK) {
        snprintf(partial, room, "%s.partial", path);
        s = pb_disk_write_file(d, partial, text, strlen(text));
        if (s == PB_OK) s = pb_disk_rename(d, partial, path);
        if (s != PB_OK) unlink(partial);
    }
    if (s == PB_OK) s = pb_disk_sync_parent(d, path);
    free(partial);
    free(text);
    return s;
}
