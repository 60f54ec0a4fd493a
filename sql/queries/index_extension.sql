-- index_extension: whether the extension of a kind of index is installed, whether the server has it, and whether its
-- operator class takes a type.
-- Rows: one. Locks: none.
SELECT EXISTS (SELECT FROM pg_extension AS e WHERE e.extname = @extension) AS installed,
       EXISTS (SELECT FROM pg_available_extensions AS e WHERE e.name = @extension) AS available,
       EXISTS (SELECT FROM pg_opclass AS o JOIN pg_am AS m ON m.oid = o.opcmethod
               WHERE m.amname = @kind AND o.opcname = @operators AND o.opcintype = @type::oid) AS takes;
