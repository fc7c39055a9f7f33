def write_page(results, tables, folder, out):
    return []
